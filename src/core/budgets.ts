/** Budgets: what a principal may use in a day. `spending.ts` counts it. */
import { invalid } from './errors.ts'
import { LIMIT_MAX } from './limits.ts'

/** Every budget, and what it limits. A day is one of UTC. */
export const BUDGETS = {
  tokensPerDay: 'tokens of its turns, input and output, as agents report them',
  costUsdPerDay: 'cost of its turns in US dollars, as agents report it',
  runningMsPerDay: 'how long its turns run, all together',
} as const

export type BudgetName = keyof typeof BUDGETS

/** Of one principal. A budget that is left out has no limit. */
export type Budget = { readonly [Name in BudgetName]?: number | undefined }

export const ON_EXCEEDED = ['refuse', 'end'] as const

export type BudgetOptions = {
  /** Of every principal, unless `principals` says otherwise. */
  readonly default?: Budget
  /** By the id of a principal. */
  readonly principals?: Readonly<Record<string, Budget>>
  /** At the bound new turns are refused; `end`: those that run are ended too. */
  readonly onExceeded?: (typeof ON_EXCEEDED)[number]
}

/** What a principal has used on a day of UTC, counted from 1970. Its name is a digest. */
export type Spending = {
  readonly principal: string
  readonly day: number
} & { readonly [Name in BudgetName]: number }

/** A program hands over an option; the configuration file was checked before. */
export function checkBudgetOptions(options: BudgetOptions): void {
  const { default: byDefault = {}, principals = {}, onExceeded = 'refuse' } = options
  if (!ON_EXCEEDED.includes(onExceeded)) {
    throw invalid('budgets.onExceeded', `must be one of ${ON_EXCEEDED.join(', ')}`)
  }
  checkBudget(byDefault, 'budgets.default')
  for (const [id, budget] of Object.entries(principals)) {
    checkBudget(budget, `budgets.principals.${id}`)
  }
}

function checkBudget(budget: Budget, field: string): void {
  if (typeof budget !== 'object' || budget === null || Array.isArray(budget)) {
    throw invalid(field, `must be an object of ${Object.keys(BUDGETS).join(', ')}`)
  }
  for (const [name, limit] of Object.entries(budget)) {
    if (!Object.hasOwn(BUDGETS, name)) throw invalid(`${field}.${name}`, 'is no budget')
    if (limit === undefined || (Number.isFinite(limit) && limit >= 0 && limit <= LIMIT_MAX))
      continue
    throw invalid(`${field}.${name}`, `must be a number from 0 to ${LIMIT_MAX}`)
  }
}

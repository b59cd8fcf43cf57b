/** Quotas: how much a principal may use. `usage.ts` counts it. */
import { invalid } from './errors.ts'
import { LIMIT_MAX } from './limits.ts'

/** Every quota, and what it limits. */
export const QUOTAS = {
  openSessions: 'open sessions that belong to it',
  runningTurns: 'turns of it that run at the same time',
  queuedTurns: 'turns of it that wait, in all sessions together; 0: none may wait',
  turnsPerMinute: 'turns that it may ask for in a minute; as many at once after a pause',
  storedBytes:
    'bytes of the events, images and files of all its sessions, closed ones too, until erased',
  browserSessions: 'browser sessions that it has open',
  sockets: 'WebSockets that it has open, those to browsers too',
} as const

export type QuotaName = keyof typeof QUOTAS

/** The limits of one principal. A quota that is left out has no limit. */
export type Quotas = { readonly [Name in QuotaName]?: number | undefined }

export type QuotaOptions = {
  /** Of every principal and group, unless `principals` says otherwise. */
  readonly default?: Quotas
  /** By the id of a principal, or `@` and the name of a group. */
  readonly principals?: Readonly<Record<string, Quotas>>
}

/** Throws `invalid_field` unless these are quotas, and whole numbers. */
export function checkQuotas(quotas: Quotas, field: string): Quotas {
  if (typeof quotas !== 'object' || quotas === null || Array.isArray(quotas)) {
    throw invalid(field, `must be an object of ${Object.keys(QUOTAS).join(', ')}`)
  }
  for (const [name, limit] of Object.entries(quotas)) {
    if (!Object.hasOwn(QUOTAS, name)) throw invalid(`${field}.${name}`, 'is no quota')
    if (limit === undefined) continue
    if (Number.isInteger(limit) && limit >= 0 && limit <= LIMIT_MAX) continue
    throw invalid(`${field}.${name}`, `must be a whole number from 0 to ${LIMIT_MAX}`)
  }
  return quotas
}

/** A program hands over an option; the configuration file was checked before. */
export function checkQuotaOptions(options: QuotaOptions): void {
  if (options.default !== undefined) checkQuotas(options.default, 'quotas.default')
  for (const [id, quotas] of Object.entries(options.principals ?? {})) {
    checkQuotas(quotas, `quotas.principals.${id}`)
  }
}

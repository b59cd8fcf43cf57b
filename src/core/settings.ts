/**
 * Settings: how an agent is to work in a session, or in a single turn. A session has them from its
 * creation, and they can be changed later; each change is an event. The core checks their shape; a
 * runner says which of them it can honour, and anything else is refused.
 */
import type { SettingsChange } from './commands.ts'
import { HoldfastError, invalid } from './errors.ts'
import type { EventOf, Draft } from './events.ts'
import { STATE_LIMITS } from './limits.ts'
import type { Runner } from './runner.ts'
import {
  SETTING_NAMES,
  type Activity,
  type Folding,
  type Principal,
  type Session,
  type Settings,
  type Usage,
} from './state.ts'
import { recordedBy } from './turns.ts'

const LISTS: readonly string[] = ['directories', 'mcpServers']
const CHARS_MAX: Readonly<Record<string, number>> = {
  instructions: STATE_LIMITS.instructionsCharsMax,
}

/** Only the known ones, checked: a program may hand over anything. Null takes a setting back. */
export function checkSettings(change: SettingsChange, field = 'settings'): SettingsChange {
  if (typeof change !== 'object' || change === null || Array.isArray(change)) {
    throw invalid(field, 'must be an object')
  }
  for (const [name, value] of Object.entries(change)) {
    if (value === null || value === undefined) continue
    const where = `${field}.${name}`
    if (name === 'onNobody') checkOnNobody(value, where)
    else if (!SETTING_NAMES.some((known) => known === name)) {
      throw invalid(where, `is no setting; there are: ${SETTING_NAMES.join(', ')}, onNobody`)
    } else if (LISTS.includes(name)) checkList(value, where)
    else checkText(value, where, CHARS_MAX[name] ?? STATE_LIMITS.settingCharsMax)
  }
  return change
}

function checkOnNobody(value: unknown, where: string): void {
  if (value !== 'wait' && value !== 'deny') throw invalid(where, 'must be one of wait, deny')
}

function checkList(value: unknown, where: string): void {
  const { settingItemsMax, settingCharsMax } = STATE_LIMITS
  if (!Array.isArray(value)) throw invalid(where, 'must be a list of texts')
  if (value.length > settingItemsMax) throw invalid(where, `must have at most ${settingItemsMax}`)
  for (const [index, item] of value.entries()) checkText(item, `${where}.${index}`, settingCharsMax)
}

function checkText(value: unknown, where: string, charsMax: number): void {
  const isText = typeof value === 'string' && value !== '' && value.isWellFormed()
  if (isText && value.length <= charsMax && !value.includes('\0')) return
  throw invalid(where, `must be a text of 1 to ${charsMax} characters`)
}

/** The settings after a change. */
export function changedSettings(before: Settings, change: SettingsChange): Settings {
  const entries = Object.entries({ ...before, ...change })
  return Object.fromEntries(entries.filter(([, value]) => value !== null && value !== undefined))
}

/** The settings of a turn alone: those of its request, and what the session leaves to its door. */
export function ownSettings(
  { settings, onNobody }: { settings: Settings | null; onNobody?: Settings['onNobody'] },
  session: Session,
): Settings | null {
  if (onNobody === undefined || session.settings.onNobody !== undefined) return settings
  return { onNobody, ...settings }
}

/** The settings of a session, and those of its turn on top: instructions are added to its own. */
export function turnSettings(session: Settings, turn: Settings | undefined): Settings {
  if (turn === undefined) return session
  const texts = [session.instructions, turn.instructions].filter((text) => text !== undefined)
  const joined = texts.length === 2 ? { instructions: texts.join('\n\n') } : {}
  return { ...session, ...turn, ...joined }
}

/** Throws unless the agent can honour them. */
export function assertHonoured(agent: string, runner: Runner | null, settings: Settings): void {
  const names = SETTING_NAMES.filter((name) => settings[name] !== undefined)
  if (names.length === 0 || runner === null) return
  const honoured = runner.capabilities?.settings ?? []
  const missing = names.find((name) => !honoured.includes(name))
  if (missing === undefined) return runner.checkSettings?.(settings)
  const message = `agent ${agent} cannot honour the setting ${missing}`
  throw new HoldfastError('setting_unsupported', message, { setting: missing, honoured })
}

export function decideConfigure(
  { settings: before }: Session,
  { settings: change, by }: { readonly settings: SettingsChange; readonly by: Principal | null },
): readonly Draft[] {
  const settings = changedSettings(before, change)
  const names = [...SETTING_NAMES, 'onNobody'] as const
  const isSame = names.every((name) => sameSetting(before[name], settings[name]))
  return isSame ? [] : [{ type: 'session.configured', settings, ...recordedBy(by) }]
}

function sameSetting(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** Whether two turns may be one. */
export function sameSettings(one: Settings | null, other: Settings | null): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other)
}

export const NO_USAGE: Usage = { inputTokens: 0, outputTokens: 0, cachedTokens: 0, costUsd: 0 }

/** What the activities of agents say of the session itself: its plan, commands and usage. */
export function foldActivity(session: Folding, { kind, data }: EventOf<'turn.activity'>): void {
  if (typeof data !== 'object' || data === null) return
  const fields = data as Readonly<Record<string, unknown>>
  if (kind === 'plan') session.plan = keptList(fields['entries'])
  else if (kind === 'commands') session.commands = keptList(fields['commands'])
  else if (kind === 'usage') session.usage = addedUsage(session.usage, fields)
}

/** What an activity says that was used; null: it is about something else. */
export function usageIn({ kind, data }: Activity): Usage | null {
  if (kind !== 'usage' || typeof data !== 'object' || data === null) return null
  return addedUsage(NO_USAGE, data as Readonly<Record<string, unknown>>)
}

/** A list that is too large to be kept in the session's state is left to the log. */
function keptList(value: unknown): readonly unknown[] | null {
  if (!Array.isArray(value)) return null
  return JSON.stringify(value).length <= STATE_LIMITS.listCharsMax ? value : null
}

export function addedUsage(before: Usage, fields: Readonly<Record<string, unknown>>): Usage {
  const added = (name: keyof Usage): number => {
    const value = fields[name]
    return before[name] + (typeof value === 'number' && value > 0 && value < 1e12 ? value : 0)
  }
  return {
    inputTokens: added('inputTokens'),
    outputTokens: added('outputTokens'),
    cachedTokens: added('cachedTokens'),
    costUsd: added('costUsd'),
  }
}

/** The settings of a session, checked against what the operator lets sessions choose from. */
import { realpath } from 'node:fs/promises'
import { isAbsolute, normalize, sep } from 'node:path'
import { invalid, type RunnerContext, type SettingName, type Settings } from '../core/index.ts'
import { hasOwnHome } from '../platform/isolation.ts'
import type { Choices, McpServerOptions } from './agent-options.ts'
import type { ProgramOptions } from './isolation.ts'
import { asObject } from './json.ts'

/** Modes of agents in which they ask for nothing: only if the operator names them. */
const UNASKING = /bypass|full-?access|yolo|dont-?ask|auto-?approve|allow-?all/i

/** Whether the settings of a session may name this mode. */
export function mayChooseMode(mode: string, { modes }: Choices): boolean {
  return modes === undefined ? !UNASKING.test(mode) : modes.includes(mode)
}

/** The settings of places that sessions can have. An isolated agent sees its own folder only. */
export function placeSettings(options: Choices & ProgramOptions): readonly SettingName[] {
  const { folders, mcpServers, isolation, wrap } = options
  const isApart = isolation !== undefined || wrap !== undefined
  return [
    ...(folders === undefined || isApart ? [] : (['cwd', 'directories'] as const)),
    ...(mcpServers === undefined ? [] : (['mcpServers'] as const)),
  ]
}

/** Throws `invalid_field` for the first setting that the operator does not allow. */
export function checkChoices(settings: Settings, choices: Choices, modes: readonly string[]): void {
  const { mode, cwd, directories = [], mcpServers = [] } = settings
  if (mode !== undefined) checkMode(mode, choices, modes)
  const named = [...(cwd === undefined ? [] : [['cwd', cwd] as const])]
  const further = directories.map((folder, index) => [`directories.${index}`, folder] as const)
  for (const [field, folder] of [...named, ...further]) {
    if (isAbsolute(folder) && isAllowed(normalize(folder), choices)) continue
    throw notAllowed(field, choices)
  }
  for (const [index, name] of mcpServers.entries()) {
    assertAmong(`settings.mcpServers.${index}`, name, Object.keys(choices.mcpServers ?? {}))
  }
}

/** Throws unless sessions may work in folders of their own choice, as adopted ones have to. */
export function assertAdopts(options: Choices & ProgramOptions): void {
  if (placeSettings(options).includes('cwd')) return
  throw invalid('agent', 'needs "folders": those whose conversations may be continued')
}

export function assertAmong(field: string, value: string, values: readonly string[]): void {
  if (values.includes(value)) return
  throw invalid(field, `must be one of ${values.join(', ')}`)
}

/** `modes` are those that are known; before an agent has run there may be none. */
function checkMode(mode: string, choices: Choices, modes: readonly string[]): void {
  const allowed = modes.filter((one) => mayChooseMode(one, choices))
  if (modes.length === 0 ? mayChooseMode(mode, choices) : allowed.includes(mode)) return
  const known = modes.length === 0 ? (choices.modes ?? []) : allowed
  const hint =
    known.length === 0
      ? 'is a mode that the operator has to allow'
      : `must be one of ${known.join(', ')}`
  throw invalid('settings.mode', hint)
}

function notAllowed(field: string, { folders = [] }: Choices) {
  return invalid(`settings.${field}`, `must be an absolute path in one of ${folders.join(', ')}`)
}

function isAllowed(folder: string, { folders = [] }: Choices): boolean {
  return folders.some((root) => folder === root || folder.startsWith(withSeparator(root)))
}

function withSeparator(folder: string): string {
  return folder.endsWith(sep) ? folder : folder + sep
}

/**
 * A fork works in the folder of its source, which its conversation is about, and by which some
 * agents find their sessions. A runner keeps it as the position of each turn.
 */
export function folderOf(
  { origin }: Pick<RunnerContext['session'], 'origin'>,
  own: string,
): string {
  const { cwd } = asObject(origin?.position)
  return typeof cwd === 'string' ? cwd : own
}

/** Whether the sessions of an agent are in one home: only then can one continue another. */
export function mayFork(options: ProgramOptions): boolean {
  return options.wrap === undefined && !hasOwnHome(options)
}

export type Places = { readonly cwd: string; readonly directories: readonly string[] }

/**
 * The folders that a turn works in. They are resolved now: a symbolic link in an allowed folder,
 * which the agent can make, must not lead out of it.
 */
export async function placesOf(
  { cwd, directories = [] }: Settings,
  choices: Choices,
  own: string,
): Promise<Places> {
  const roots = await Promise.all((choices.folders ?? []).map((folder) => realpath(folder)))
  const find = async (field: string, folder: string): Promise<string> => {
    const found = await realpath(folder).catch(() => null)
    if (found !== null && isAllowed(found, { folders: roots })) return found
    throw found === null
      ? invalid(`settings.${field}`, 'must be a folder that is there')
      : notAllowed(field, choices)
  }
  return {
    cwd: cwd === undefined ? own : await find('cwd', cwd),
    directories: await Promise.all(
      directories.map((folder, index) => find(`directories.${index}`, folder)),
    ),
  }
}

/**
 * Of folders that a person has allowed the agent, or may allow it, those that the operator's
 * `folders` contain, resolved, and those of the session itself. Without `folders` all of them.
 */
export async function foldersWithin(
  wanted: readonly string[],
  { folders }: Choices,
  { cwd, directories }: Places,
): Promise<readonly string[]> {
  if (folders === undefined || wanted.length === 0) return wanted
  // One that is not there, or cannot be looked at, is not known to be within.
  const resolve = (folder: string): Promise<string | null> => realpath(folder).catch(() => null)
  const roots = await Promise.all([...folders, cwd, ...directories].map(resolve))
  const there = roots.filter((root) => root !== null)
  const found = await Promise.all(wanted.map(resolve))
  return found.filter(
    (folder) => folder !== null && isAllowed(folder, { folders: there }),
  ) as string[]
}

/** The MCP servers that the settings name, by default all, in the order of their names. */
export function namedServers(
  { mcpServers: names }: Settings,
  { mcpServers = {} }: Choices,
): readonly (readonly [string, McpServerOptions])[] {
  const servers = Object.entries(mcpServers).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return servers.filter(([name]) => names?.includes(name) ?? true)
}

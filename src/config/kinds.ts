/** The kinds of runner that a configuration can name, each with its fields. */
import { stat } from 'node:fs/promises'
import { isAbsolute, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { invalid, type Runner } from '../core/index.ts'
import { acpRunner, type AcpOptions } from '../runners/acp/index.ts'
import { functionRunner, type Agent } from '../runners/function.ts'
import { checkAddress, openaiRunner, type OpenAiOptions } from '../runners/openai/index.ts'
import { mentions } from '../runners/process/arguments.ts'
import { DIALECTS, ProcessRunner, type ProcessOptions } from '../runners/process/index.ts'
import {
  at,
  count,
  flag,
  oneOf,
  readObject,
  text,
  texts,
  variables,
  type Entries,
  type Fields,
  milliseconds,
} from './fields.ts'
import { findProgram } from './programs.ts'

/** Where an agent is configured, and where it works. */
export type Place = {
  /** The path of its fields, for what is wrong with them: `agents.claude`. */
  readonly path: string
  /** The folder that relative paths are relative to: the configuration's own. */
  readonly base: string
  /** Where agents keep what they work on: in the data folder. */
  readonly folder: string
  /** How to get the program, if it is a preset's. */
  readonly hint?: string
}

export interface RunnerKind {
  readonly fields: Fields
  readonly required: readonly string[]
  /** The fields are checked one by one; what they are together is for this. */
  open(fields: Entries, place: Place): Promise<Runner>
}

/** What all kinds that start a program have in common. */
export const PROGRAM_FIELDS: Fields = {
  command: text,
  args: texts,
  env: variables,
  envAllow: texts,
  cwd: text,
}

const process: RunnerKind = {
  fields: {
    ...PROGRAM_FIELDS,
    firstArgs: texts,
    laterArgs: texts,
    output: oneOf(Object.keys(DIALECTS)),
    turnMs: milliseconds,
    outputBytesMax: count,
    memoryBytesMax: count,
    killGraceMs: milliseconds,
  },
  required: ['command'],
  async open(fields, place) {
    const options = await programOptions(fields as ProcessOptions, place)
    checkSession(options, place)
    return new ProcessRunner({ ...options, folder: place.folder })
  },
}

/** The program found, and paths made absolute. */
export async function programOptions<
  Options extends { readonly command: string; readonly cwd?: string },
>(options: Options, { path, base, hint }: Place): Promise<Options> {
  const command = await findProgram(options.command, base)
  if (command === null) {
    const instead = hint === undefined ? '' : `: ${hint}`
    throw invalid(at(path, 'command'), `names no program: ${options.command}${instead}`)
  }
  if (options.cwd === undefined) return { ...options, command }
  const cwd = resolve(base, options.cwd)
  // Why it is none does not matter: it is refused.
  const isFolder = await stat(cwd)
    .then((found) => found.isDirectory())
    .catch(() => false)
  if (!isFolder) throw invalid(at(path, 'cwd'), `must be a folder that is there, not ${cwd}`)
  return { ...options, command, cwd }
}

/** A session id that the program makes itself has to be told by it. */
function checkSession(
  { args = [], firstArgs = [], laterArgs = [], output }: ProcessOptions,
  { path }: Place,
) {
  const isReserved = mentions([...args, ...firstArgs], 'sessionUuid')
  if (isReserved || !mentions(laterArgs, 'sessionUuid')) return
  if (DIALECTS[output ?? 'text'].tellsSession) return
  throw invalid(
    at(path, 'laterArgs'),
    'name {sessionUuid}, but no first turn chooses or tells one: name it in firstArgs too',
  )
}

const functionKind: RunnerKind = {
  fields: { module: text, export: text },
  required: ['module'],
  async open(fields, { path, base }) {
    const { module, export: name = 'default' } = fields as { module: string; export?: string }
    const agent = (await importModule(module, base, at(path, 'module')))[name]
    if (typeof agent === 'function') return functionRunner(agent as Agent)
    throw invalid(at(path, 'export'), `must name an async function of ${module}, not ${name}`)
  },
}

async function importModule(module: string, base: string, path: string): Promise<Entries> {
  const file = isAbsolute(module) ? module : resolve(base, module)
  try {
    return (await import(pathToFileURL(file).href)) as Entries
  } catch (error) {
    throw invalid(path, `cannot be loaded: ${(error as Error).message}`)
  }
}

const acp: RunnerKind = {
  fields: {
    ...PROGRAM_FIELDS,
    perSession: flag,
    childrenMax: count,
    idleMs: milliseconds,
    reopenMs: milliseconds,
    startMs: milliseconds,
    cancelMs: milliseconds,
    memoryBytesMax: count,
    askMs: milliseconds,
    onNobody: oneOf(['wait', 'deny']),
  },
  required: ['command'],
  async open(fields, place) {
    const options = await programOptions(fields as AcpOptions, place)
    return acpRunner({ ...options, folder: place.folder })
  },
}

const openai: RunnerKind = {
  fields: {
    baseUrl: text,
    model: text,
    apiKeyEnv: text,
    system: text,
    historyMax: count,
    historyCharsMax: count,
    parameters: readObject,
    startMs: milliseconds,
    pauseMs: milliseconds,
  },
  required: ['baseUrl', 'model'],
  async open(fields, { path }) {
    const options = fields as OpenAiOptions
    checkAddress(options.baseUrl, at(path, 'baseUrl'))
    return openaiRunner(options)
  },
}

export const RUNNER_KINDS: Readonly<Record<string, RunnerKind>> = {
  process,
  acp,
  openai,
  function: functionKind,
}

/** Opening an agent of each kind. */
import { stat } from 'node:fs/promises'
import { isAbsolute, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { invalid, type Runner } from '../core/index.ts'
import { acpRunner } from '../runners/acp/index.ts'
import { functionRunner, type Agent } from '../runners/function.ts'
import { checkAddress, openaiRunner } from '../runners/openai/index.ts'
import { OUTPUT_FORMATS } from '../runners/process/formats.ts'
import { ProcessRunner } from '../runners/process/index.ts'
import { mentions, type ProcessOptions } from '../runners/process/options.ts'
import { findProgram } from './programs.ts'
import type { RunnerConfig } from './schema.ts'

/** Where an agent is configured, and where it works. */
export type AgentLocation = {
  /** The path of its fields, for errors: `agents.claude`. */
  readonly path: string
  /** The folder that relative paths are relative to: the configuration's own. */
  readonly base: string
  /** Where agents keep what they work on: in the data folder. */
  readonly folder: string
  /** How to get the program, if it is a preset's. */
  readonly hint?: string
}

/** The fields were checked one by one; here they are checked together, and against the machine. */
export async function openRunner(agent: RunnerConfig, location: AgentLocation): Promise<Runner> {
  const { path, base, folder } = location
  switch (agent.runner) {
    case 'process': {
      const { runner: _, ...options } = await programOptions(agent, location)
      checkSession(options, path)
      return new ProcessRunner({ ...options, folder })
    }
    case 'acp': {
      const { runner: _, ...options } = await programOptions(agent, location)
      return acpRunner({ ...options, folder })
    }
    case 'openai': {
      const { runner: _, ...options } = agent
      checkAddress(options.baseUrl, `${path}.baseUrl`)
      return openaiRunner(options)
    }
    case 'function': {
      const { module, export: name = 'default' } = agent
      const found = (await importModule(module, base, `${path}.module`))[name]
      if (typeof found === 'function') return functionRunner(found as Agent)
      throw invalid(`${path}.export`, `must name an async function of ${module}, not ${name}`)
    }
  }
}

/** The program found, and paths made absolute. */
async function programOptions<Options extends { readonly command: string; readonly cwd?: string }>(
  options: Options,
  { path, base, hint }: AgentLocation,
): Promise<Options> {
  const command = await findProgram(options.command, base)
  if (command === null) {
    const instead = hint === undefined ? '' : `: ${hint}`
    throw invalid(`${path}.command`, `names no program: ${options.command}${instead}`)
  }
  if (options.cwd === undefined) return { ...options, command }
  const cwd = resolve(base, options.cwd)
  // Why it is none does not matter: it is refused.
  const isFolder = await stat(cwd)
    .then((found) => found.isDirectory())
    .catch(() => false)
  if (!isFolder) throw invalid(`${path}.cwd`, `must be a folder that is there, not ${cwd}`)
  return { ...options, command, cwd }
}

/** If the program chooses its session id, its output must report it. */
function checkSession(
  { args = [], firstArgs = [], laterArgs = [], output }: Omit<ProcessOptions, 'folder'>,
  path: string,
): void {
  const isReserved = mentions([...args, ...firstArgs], 'sessionUuid')
  if (isReserved || !mentions(laterArgs, 'sessionUuid')) return
  if (OUTPUT_FORMATS[output ?? 'text'].hasSession) return
  throw invalid(
    `${path}.laterArgs`,
    'name {sessionUuid}, but no first turn chooses or tells one: name it in firstArgs too',
  )
}

async function importModule(
  module: string,
  base: string,
  path: string,
): Promise<Readonly<Record<string, unknown>>> {
  const file = isAbsolute(module) ? module : resolve(base, module)
  try {
    return (await import(pathToFileURL(file).href)) as Readonly<Record<string, unknown>>
  } catch (error) {
    throw invalid(path, `cannot be loaded: ${(error as Error).message}`)
  }
}

/** Opening an agent of each kind. */
import { access, constants, stat } from 'node:fs/promises'
import { delimiter, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { invalid, type Runner } from '../core/index.ts'
import { acpRunner } from '../runners/acp/index.ts'
import { functionRunner, type Agent } from '../runners/function.ts'
import { checkAddress, openaiRunner } from '../runners/openai/index.ts'
import { OUTPUT_FORMATS } from '../runners/process/formats.ts'
import { ProcessRunner } from '../runners/process/index.ts'
import { mentions, type ProcessOptions } from '../runners/process/options.ts'
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
      const paths = await findPaths(agent, location)
      checkSession(agent, path)
      return new ProcessRunner({ ...agent, ...paths, folder })
    }
    case 'acp':
      return acpRunner({ ...agent, ...(await findPaths(agent, location)), folder })
    case 'openai':
      checkAddress(agent.baseUrl, `${path}.baseUrl`)
      return openaiRunner(agent)
    case 'function': {
      const { module, export: name = 'default' } = agent
      const url = pathToFileURL(resolve(base, module)).href
      const loaded = await import(url).catch((error: Error) => {
        throw invalid(`${path}.module`, `cannot be loaded: ${error.message}`)
      })
      const found = (loaded as Readonly<Record<string, unknown>>)[name]
      if (typeof found === 'function') return functionRunner(found as Agent)
      throw invalid(`${path}.export`, `must name an async function of ${module}, not ${name}`)
    }
  }
}

/** The program, found on this machine, and its working folder as an absolute path. */
async function findPaths(
  options: { readonly command: string; readonly cwd?: string },
  { path, base, hint }: AgentLocation,
): Promise<{ command: string; cwd?: string }> {
  const command = await findProgram(options.command, base)
  if (command === null) {
    const instead = hint === undefined ? '' : `: ${hint}`
    throw invalid(`${path}.command`, `names no program: ${options.command}${instead}`)
  }
  if (options.cwd === undefined) return { command }
  const cwd = resolve(base, options.cwd)
  // Why it is none does not matter: it is refused.
  const found = await stat(cwd).catch(() => null)
  if (found?.isDirectory() === true) return { command, cwd }
  throw invalid(`${path}.cwd`, `must be a folder that is there, not ${cwd}`)
}

/**
 * The program's own path: a name is looked for on PATH, anything else is relative to `base`. So a
 * missing program is reported at the start, and not by the first turn.
 */
export async function findProgram(
  command: string,
  base: string,
  path = process.env['PATH'] ?? '',
): Promise<string | null> {
  const endings = process.platform === 'win32' ? ['.exe', '.cmd', ''] : ['']
  const folders = path.split(delimiter).filter((folder) => folder !== '')
  const files = /[/\\]/.test(command)
    ? [resolve(base, command)]
    : folders.flatMap((folder) => endings.map((ending) => resolve(folder, command + ending)))
  for (const file of files) if (await isProgram(file)) return file
  return null
}

/** False too for a file that cannot be looked at: the search goes on. */
async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    return false
  }
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

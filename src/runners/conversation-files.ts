/**
 * The files in which agents keep their conversations, and how they are removed. Only what is named
 * by the conversation's id, which must be a UUID, is looked at; links are not followed.
 */
import { readdir, type FileHandle } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import type {
  ErasedSession,
  LeftFiles,
  OpenedSession,
  Settings,
  TerminalCommand,
} from '../core/index.ts'
import { openWithin } from '../platform/agent-files.ts'
import type { Workplace } from '../platform/child.ts'
import { readLines } from '../platform/text.ts'
import { folderOf } from './agent-settings.ts'
import { claudeMessages } from './claude/transcript.ts'
import { codexMessages } from './codex/rollout.ts'
import { parsedLine, type JsonObject } from './json.ts'
import type { LoggedMessage } from './logged-message.ts'

type Environment = Readonly<Record<string, string>>

/** How the agent's own program is told which conversation to continue. */
type OwnFiles = {
  /** The arguments with which a person continues a conversation in the program. */
  readonly resumeArgs: (id: string) => readonly string[]
  /** The variable that says where they are. */
  readonly variable?: string
}

export type ConversationFiles = OwnFiles & {
  /** The folder in which all of them are. */
  readonly root: (env: Environment) => string
  readonly find: (env: Environment, id: string) => Promise<readonly string[]>
  /** The arguments with which the program itself deletes a conversation, if it can. */
  readonly deleteArgs?: (id: string) => readonly string[]
  /** What was said in a line of the file that has the conversation. */
  readonly messagesIn: (line: JsonObject) => readonly LoggedMessage[]
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
/** An id that is no flag, and needs no quotes. */
const ID = /^\w[\w.:-]*$/
/** How long a program may take to delete a conversation. */
const DELETE_MS = 30_000

const CLAUDE_FOLDERS = ['todos', 'tasks', 'file-history', 'session-env', 'debug']

/** `PROJECT/ID.jsonl`, and what else Claude Code names by the id of a session. */
export const CLAUDE_FILES: ConversationFiles = {
  root: (env) => env['CLAUDE_CONFIG_DIR'] ?? join(env['HOME'] ?? '/', '.claude'),
  async find(env, id) {
    const root = CLAUDE_FILES.root(env)
    const projects = await foldersIn(root, ['projects'])
    const besides = await foldersIn(root, CLAUDE_FOLDERS)
    const folders = [...(await eachIn(projects, foldersIn)), ...besides]
    return eachIn(folders, (folder) => entriesIn(folder, isNamedBy(id)))
  },
  resumeArgs: (id) => ['--resume', id],
  variable: 'CLAUDE_CONFIG_DIR',
  messagesIn: claudeMessages,
}

/** `sessions/YEAR/MONTH/DAY/rollout-TIME-ID.jsonl`; `codex delete` knows its databases too. */
export const CODEX_FILES: ConversationFiles = {
  root: (env) => env['CODEX_HOME'] ?? join(env['HOME'] ?? '/', '.codex'),
  async find(env, id) {
    const root = CODEX_FILES.root(env)
    let folders = await foldersIn(root, ['sessions'])
    for (let depth = 0; depth < 3; depth += 1) folders = await eachIn(folders, foldersIn)
    const all = [...folders, ...(await foldersIn(root, ['archived_sessions']))]
    const snapshots = await foldersIn(root, ['shell_snapshots'])
    return [
      ...(await eachIn(all, (folder) =>
        entriesIn(folder, (name) => name.endsWith(`-${id}.jsonl`)),
      )),
      ...(await eachIn(snapshots, (folder) => entriesIn(folder, isNamedBy(id)))),
    ]
  },
  deleteArgs: (id) => ['delete', '--force', id],
  // Its shared background server would keep the conversation open after the person has left.
  resumeArgs: (id) => ['resume', '--no-daemon', id],
  variable: 'CODEX_HOME',
  messagesIn: codexMessages,
}

/** The file that has a conversation; null: there is none. */
export async function findLog(
  { find }: ConversationFiles,
  env: Environment,
  id: string,
): Promise<string | null> {
  return UUID.test(id) ? ((await find(env, id)).find(isLog) ?? null) : null
}

/** Such a file, open for reading; null: it is gone, or the agent has put something else there. */
export async function openLog(
  { root }: ConversationFiles,
  env: Environment,
  log: string,
): Promise<FileHandle | null> {
  return openWithin(log, [root(env)]).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ELOOP') return null
    throw error
  })
}

/** The lines of a part of such a file. */
export async function* linesOf(
  file: FileHandle,
  range: { readonly start: number; readonly end: number },
): AsyncGenerator<JsonObject> {
  // Not by the file's own `readLines`: on Node 24 a line ends there at U+2028 in a text too.
  const stream = file.createReadStream({ ...range, autoClose: false })
  for await (const line of readLines(stream, Number.POSITIVE_INFINITY)) yield parsedLine(line)
}

/** How a person continues a session in the agent's own program; null if it would not find it. */
export function terminalCommand(
  workplace: Workplace,
  session: OpenedSession,
  { files, settings }: { readonly files: OwnFiles | null; readonly settings: Settings },
): TerminalCommand | null {
  const { id, backend } = session
  if (files === null || !ID.test(backend) || workplace.hasOwnHome) return null
  const { variable = 'HOME', resumeArgs } = files
  const env = workplace.environmentOf(id)
  // A person's shell may not know where the server's agents keep their conversations.
  const folders = [...new Set(['HOME', variable])]
    .filter((name) => env[name] !== undefined && (name !== 'HOME' || env[name] !== homedir()))
    .map((name) => `${name}=${env[name]}`)
  const prefix = folders.length === 0 ? [] : ['env', ...folders]
  const command = [...prefix, workplace.command, ...resumeArgs(backend)]
  return { command, cwd: settings.cwd ?? folderOf(session, workplace.folderOf(id)) }
}

/** How the conversation of a session is removed. */
type Erasing = {
  /** Null: it is not known where the agent keeps it. */
  readonly files: ConversationFiles | null
  /** Has the agent delete a conversation; false: it cannot. */
  readonly deleteIt?: (session: ErasedSession, backend: string) => Promise<boolean>
}

/**
 * Removes a session's folders, and what its agent keeps of the conversation elsewhere; returns what
 * could not be removed.
 */
export async function eraseFiles(
  workplace: Workplace,
  session: ErasedSession,
  erasing: Erasing,
): Promise<readonly LeftFiles[]> {
  // A home of its own is removed first: the agent may have put links to other homes there.
  const first = workplace.hasOwnHome ? await workplace.erase(session.id) : null
  const conversation = await eraseConversation(workplace, session, erasing).catch(() => {
    // A folder of the agent cannot be read, or its program cannot be started.
    return [{ what: 'what its agent keeps of the conversation' }]
  })
  return [...conversation, ...(first ?? (await workplace.erase(session.id)))]
}

async function eraseConversation(
  workplace: Workplace,
  session: ErasedSession,
  { files, deleteIt }: Erasing,
): Promise<readonly LeftFiles[]> {
  const { id, backend, origin } = session
  if (backend === null) return []
  if (origin?.session === undefined && origin?.backend === backend) {
    return [{ what: 'the conversation that was begun without Holdfast' }]
  }
  if (files === null) {
    // A home of its own is removed as a whole.
    if (workplace.hasOwnHome || (await deleteIt?.(session, backend)) === true) return []
    return [{ what: 'what its agent keeps of the conversation' }]
  }
  if (!UUID.test(backend)) return []
  const env = workplace.environmentOf(id)
  let found = await files.find(env, backend)
  const { deleteArgs } = files
  const left: LeftFiles[] = []
  if (found.some(isLog) && deleteArgs !== undefined && !workplace.hasOwnHome) {
    await workplace.runOnce(id, deleteArgs(backend), DELETE_MS)
    found = await files.find(env, backend)
    if (found.some(isLog)) left.push({ what: "its agent's index of conversations" })
  }
  for (const path of found) {
    if (await workplace.remove(path)) continue
    left.push({ what: "a file of its agent's conversation", path })
  }
  return left
}

const isLog = (path: string): boolean => path.endsWith('.jsonl')

/** `ID`, `ID.…` or `ID-…`. */
function isNamedBy(id: string): (name: string) => boolean {
  return (name) => name.startsWith(id) && /^(?:$|[.-])/.test(name.slice(id.length))
}

/** The folders in a folder, of these names or of any. */
async function foldersIn(folder: string, names?: readonly string[]): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(noneIfMissing)
  return entries
    .filter((entry) => entry.isDirectory() && (names?.includes(entry.name) ?? true))
    .map(({ name }) => join(folder, name))
}

async function eachIn(
  folders: readonly string[],
  list: (folder: string) => Promise<string[]>,
): Promise<string[]> {
  return (await Promise.all(folders.map((folder) => list(folder)))).flat()
}

async function entriesIn(folder: string, isWanted: (name: string) => boolean): Promise<string[]> {
  const names = await readdir(folder).catch(noneIfMissing)
  return names.filter(isWanted).map((name) => join(folder, name))
}

function noneIfMissing(error: unknown): never[] {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
  throw error
}

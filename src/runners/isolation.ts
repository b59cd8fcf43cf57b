/**
 * Whether the sessions of an agent are kept apart, and whether what the operator chose for that
 * works on this machine. A sandbox that cannot be made is an error at the start.
 */
import { chmod, mkdir, mkdtemp, realpath, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Child, childEnvironment } from '../platform/child.ts'
import {
  expandWrapper,
  findUser,
  isWithin,
  shownFolders,
  wrapperOf,
  type IsolationOptions,
  type User,
} from '../platform/isolation.ts'
import type { RefuseField } from '../schema/contract.ts'

export type ProgramOptions = IsolationOptions & {
  readonly command: string
  readonly cwd?: string
  readonly perSession?: boolean
}

/** Where the agent works, and what it must not see. */
export type Surroundings = {
  /** The parent of the sessions' folders. */
  readonly folder: string
  /** Files and folders with secrets: the data folder, the tokens file. */
  readonly hidden: readonly string[]
  readonly refuse: RefuseField
}

/** Why the sessions of this program are not kept apart; null if they are. */
export function isolationGap(options: ProgramOptions): string | null {
  const { isolation, wrap, cwd, perSession = true } = options
  if (isolation === undefined && wrap === undefined) return 'it has no "isolation" or "wrap"'
  if (!perSession) return 'all sessions share one process ("perSession": false)'
  return cwd === undefined ? null : 'all sessions share one folder ("cwd")'
}

/** Checks the fields together and on this machine; throws what `refuse` makes. */
export async function checkIsolation(options: ProgramOptions, around: Surroundings): Promise<void> {
  checkFields(options, around.refuse)
  const { isolation, runAs } = options
  if (isolation === undefined && runAs === undefined) return
  const user = runAs === undefined ? null : userOf(runAs, around.refuse)
  // In a user namespace too, root's processes may write to /proc/sys, and so leave the sandbox.
  if (isolation !== undefined && user === null && process.getuid?.() === 0) {
    throw around.refuse('runAs', 'must name another user: the server runs as root')
  }
  if (user !== null) await makePassable(user, around)
  if (isolation !== undefined) await checkHidden(options, around)
  await tryOut(options, user, around)
}

function checkFields(options: ProgramOptions, refuse: RefuseField): void {
  const { isolation, wrap = [], perSession = true } = options
  if (isolation === undefined) {
    const alone = (['network', 'readOnly'] as const).find((name) => options[name] !== undefined)
    if (alone !== undefined) throw refuse(alone, 'needs "isolation"')
  } else if (wrap.length > 0) throw refuse('wrap', 'and "isolation" exclude each other')
  const needsSession = isolation !== undefined || wrap.some((one) => /\{(cwd|home)\}/.test(one))
  if (perSession || !needsSession) return
  throw refuse('perSession', 'must be true: an isolated process serves one session')
}

function userOf(runAs: NonNullable<IsolationOptions['runAs']>, refuse: RefuseField): User {
  try {
    return findUser(runAs)
  } catch (error) {
    throw refuse('runAs', (error as Error).message)
  }
}

/**
 * The user has to pass through the data folder, which is made so if it is not there yet. One that
 * is there is the operator's to open.
 */
async function makePassable({ uid, gid }: User, { folder, refuse }: Surroundings): Promise<void> {
  const data = dirname(folder)
  const made = await mkdir(folder, { recursive: true, mode: 0o700 })
  if (made !== undefined && made.length <= data.length) await chmod(data, 0o711)
  await chmod(folder, 0o711)
  for (let path = folder; path !== dirname(path); path = dirname(path)) {
    const found = await stat(path)
    const bit = found.uid === uid ? 0o100 : found.gid === gid ? 0o010 : 0o001
    if ((found.mode & bit) !== 0) continue
    throw refuse('runAs', `cannot reach its folder through ${path}: chmod o+x ${path}`)
  }
}

/** Nothing that the agent sees may contain, or lie in, what it must not see. */
async function checkHidden(options: ProgramOptions, { hidden, refuse }: Surroundings) {
  const { cwd } = options
  const shown = [...shownFolders(options), ...(cwd === undefined ? [] : [cwd])]
  for (const path of shown) {
    const here = await located(path)
    for (const secret of hidden) {
      const there = await located(secret)
      if (!isWithin(there, here) && !isWithin(here, there)) continue
      throw refuse('isolation', `would show ${path}, and with it ${secret}: move one of them`)
    }
  }
}

/** Without symbolic links, as far as the path exists. */
async function located(path: string): Promise<string> {
  // What is missing above an existing folder cannot be a link.
  const found = await realpath(path).catch(() => null)
  if (found !== null || path === dirname(path)) return found ?? path
  return join(await located(dirname(path)), path.slice(dirname(path).length))
}

/** Starts a shell as the agent would be started, which looks for the agent's program. */
async function tryOut(options: ProgramOptions, user: User | null, around: Surroundings) {
  const { folder, refuse } = around
  const { command, isolation, cwd } = options
  // The data folder is not made yet, unless for a user that has to reach it.
  const home = await mkdtemp(join(user === null ? tmpdir() : folder, 'holdfast-trial-'))
  try {
    if (user !== null) await chmod(home, 0o711)
    const wrapper = isolation === undefined ? [] : wrapperOf(options)
    const child = new Child({
      command: '/bin/sh',
      args: ['-c', 'test -x "$1" || exit 99', 'sh', command],
      wrapper: expandWrapper(wrapper, { cwd: cwd ?? home, home }),
      isSandboxed: isolation !== undefined,
      user,
      cwd: cwd ?? home,
      env: childEnvironment({}),
    })
    const late = setTimeout(() => child.kill(), TRIAL_MS)
    const { code, error } = await child.ended
    clearTimeout(late)
    const field = isolation === undefined ? 'runAs' : 'isolation'
    if (code === 99) throw refuse(field, `does not let it use ${command}${hintOf(field)}`)
    if (code === 0) return
    const why = child.stderr.split('\n').at(-1) || child.describeEnd()
    throw refuse(field, `does not work on this machine: ${explained(error?.code, why)}`)
  } finally {
    await rm(home, { recursive: true, force: true })
  }
}

const TRIAL_MS = 10_000

function hintOf(field: 'runAs' | 'isolation'): string {
  return field === 'runAs' ? ': that user may not execute it' : ': name its folder in "readOnly"'
}

function explained(code: unknown, why: string): string {
  if (code === 'ENOENT') return 'bwrap is not installed (apt-get install bubblewrap)'
  if (code === 'EPERM') return 'only root may start programs as another user'
  return why
}

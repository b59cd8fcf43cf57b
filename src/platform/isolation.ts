/**
 * How a child is kept apart from the server and from the children of other sessions: by another
 * user (`runAs`), and by a program in front of its command (`wrap`), of which `bubblewrap` is made
 * here. Each such child has a home of its own.
 *
 * What bubblewrap shows has the same paths inside as outside: an ACP agent is told its folder by
 * path.
 */
import { execFileSync } from 'node:child_process'
import { homedir } from 'node:os'
import { isAbsolute, sep } from 'node:path'

export type IsolationOptions = {
  /** The user and group that children run as, by number or by name. */
  readonly runAs?: { readonly uid: number | string; readonly gid?: number | string }
  /** A program and its arguments in front of the command: `{cwd}` and `{home}` are replaced. */
  readonly wrap?: readonly string[]
  readonly isolation?: 'bubblewrap'
  /** With `isolation`: whether children share the machine's network; by default they do. */
  readonly network?: boolean
  /** With `isolation`: further files and folders that children may read. */
  readonly readOnly?: readonly string[]
}

export type User = { readonly uid: number; readonly gid: number }

/** The folders that one child works in. */
export type ChildFolders = { readonly cwd: string; readonly home: string }

/** What programs need to run. Not all of `/etc`: it has keys, and perhaps the server's secrets. */
const SYSTEM = [
  ...['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'],
  ...['alternatives', 'ca-certificates', 'fonts', 'group', 'hosts', 'ld.so.cache', 'ld.so.conf'],
  ...['ld.so.conf.d', 'localtime', 'mime.types', 'nsswitch.conf', 'passwd', 'protocols'],
  ...['resolv.conf', 'services', 'timezone', 'ssl/certs', 'ssl/openssl.cnf', 'pki/ca-trust'],
  ...['pki/tls/certs', 'pki/tls/cert.pem', 'pki/tls/openssl.cnf'],
].map((name) => (name.startsWith('/') ? name : `/etc/${name}`))

/** Variables that name certificates, without which an agent reaches no model behind a proxy. */
const CERTIFICATES = ['NODE_EXTRA_CA_CERTS', 'SSL_CERT_FILE', 'SSL_CERT_DIR']

function certificates(): readonly string[] {
  return CERTIFICATES.map((name) => process.env[name] ?? '').filter((path) => isAbsolute(path))
}

/** Everything of the machine that a child in bubblewrap can read. */
export function shownFolders({ readOnly = [] }: IsolationOptions): readonly string[] {
  return [...SYSTEM, ...certificates(), ...readOnly]
}

export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep)
}

/** The descriptor on which bubblewrap names the first process of its namespace. */
export const INFO_DESCRIPTOR = 3

/** Its pid outside the namespace, in what bubblewrap has written so far; null: not yet there. */
export function firstProcessIn(info: string): number | null {
  const [, digits] = /"child-pid":\s*(\d+)\D/.exec(info) ?? []
  return digits === undefined ? null : Number(digits)
}

/**
 * Without `--die-with-parent`: the agent would be killed as soon as bubblewrap gets the SIGTERM
 * that its process group gets, and have no time to end. Killing the first process of the namespace
 * kills all others of it. The agent can make that process leave its group, so it is known by pid.
 */
function bubblewrap({ network = true, readOnly = [] }: IsolationOptions): readonly string[] {
  const show = (option: string) => (path: string) => [option, path, path]
  return [
    ...['bwrap', '--info-fd', String(INFO_DESCRIPTOR), '--unshare-all', '--cap-drop', 'ALL'],
    ...(network ? ['--share-net'] : []),
    ...SYSTEM.flatMap(show('--ro-bind-try')),
    ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '--tmpfs', '/var/tmp'],
    ...certificates().flatMap(show('--ro-bind-try')),
    ...readOnly.flatMap(show('--ro-bind')),
    ...['{home}', '{cwd}'].flatMap(show('--bind')),
    ...['--remount-ro', '/', '--'],
  ]
}

/** The program and arguments in front of a child's command; empty without any. */
export function wrapperOf(options: IsolationOptions): readonly string[] {
  return options.isolation === undefined ? (options.wrap ?? []) : bubblewrap(options)
}

/** Whether children have a home of their own instead of the server's. */
export function hasOwnHome(options: IsolationOptions): boolean {
  const { runAs, wrap = [], isolation } = options
  if (runAs !== undefined || isolation !== undefined) return true
  return wrap.some((argument) => argument.includes('{home}'))
}

export function expandWrapper(wrapper: readonly string[], folders: ChildFolders): string[] {
  return wrapper.map((argument) =>
    argument.replace(/\{(cwd|home)\}/g, (_, name: keyof ChildFolders) => folders[name]),
  )
}

/** Variables that name folders in which agents keep sessions: `CLAUDE_CONFIG_DIR`, `CODEX_HOME`. */
const FOLDER_NAME = /_(?:HOME|DIR)$/

/**
 * The environment with another home. What names folders of the server's own home, its temporary
 * ones, or folders that the child cannot see is left out, unless it is set for the child.
 */
export function environmentAt(
  home: string,
  env: Readonly<Record<string, string>>,
  options: IsolationOptions & { readonly env?: Readonly<Record<string, string>> },
): Record<string, string> {
  const isKept = ([name, value]: [string, string]): boolean => {
    if (/^(?:XDG_|TMPDIR$)/.test(name)) return false
    return !FOLDER_NAME.test(name) || !isAbsolute(value) || isInReach(value, options)
  }
  const kept = Object.entries(env).filter(isKept)
  return { ...Object.fromEntries(kept), HOME: home, ...options.env }
}

function isInReach(folder: string, options: IsolationOptions): boolean {
  if (options.isolation === undefined) return !isWithin(folder, homedir())
  return shownFolders(options).some((shown) => isWithin(folder, shown))
}

/** The numbers of a user; throws with a problem for people. The group is the user's own. */
export function findUser({ uid: user, gid: group }: NonNullable<IsolationOptions['runAs']>): User {
  const uid = typeof user === 'number' ? user : lookUp('id', ['-u', '--', user], `user ${user}`)
  const gid =
    typeof group === 'number'
      ? group
      : group === undefined
        ? lookUp('id', ['-g', '--', String(user)], `user ${user}, so "gid" must be given`)
        : lookUp('getent', ['group', '--', group], `group ${group}`)
  if (uid === 0) throw new Error('must not be root')
  return { uid, gid }
}

/** A number, as `id` prints it, or the third field, as `getent` does. */
function lookUp(program: string, args: readonly string[], what: string): number {
  try {
    const stdio = ['ignore', 'pipe', 'ignore'] as const
    const said = execFileSync(program, args, { encoding: 'utf8', stdio: [...stdio] })
    const [, digits] = /^(?:[^:]*:[^:]*:)?(\d+)/.exec(said) ?? []
    if (digits !== undefined) return Number(digits)
  } catch {
    // It ends with an error if there is none.
  }
  throw new Error(`names no ${what}`)
}

/** `holdfast token`: makes, lists and revokes the tokens in a file that `serve --tokens` reads. */
import { open, readFile, rename, rm } from 'node:fs/promises'
import { SCOPES } from '../doors/scopes.ts'
import {
  ID_RULE,
  isScope,
  isTokenId,
  isTokenName,
  mintToken,
  mintTokenId,
  NAME_RULE,
  parseTokens,
  TOKENS_VERSION,
  tokenSha256,
  type TokenEntry,
} from '../server/tokens.ts'
import { listFlag, textFlag, UsageError, type Command, type Values } from './command.ts'

const UNITS_MS: Readonly<Record<string, number>> = {
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}

export const token: Command = {
  name: 'token',
  usage: 'token new NAME | list | revoke NAME --tokens FILE [flags]',
  summary: 'Makes, lists and revokes tokens. The file holds no token, only what tells a good one.',
  flags: {
    tokens: { type: 'string' },
    scope: { type: 'string', multiple: true },
    expires: { type: 'string' },
    id: { type: 'string' },
  },
  help: [
    ['--tokens FILE', 'the file that serve is given; new makes it, for you alone'],
    ['--scope SCOPE', 'new: watch, talk, answer or admin; may be repeated'],
    ['--expires TIME', 'new: how long it is good: 90s, 45m, 12h or 30d (for ever)'],
    [
      '--id ID',
      'new: what logs know its holder by: the id of a token that it replaces (a new one)',
    ],
  ],
  run: runToken,
}

async function runToken(values: Values, words: readonly string[]): Promise<number> {
  const [action, name, ...more] = words
  const file = textFlag(values, 'tokens')
  if (file === null) throw new UsageError('token needs --tokens FILE (see holdfast token --help)')
  if (action === 'list' && name === undefined) return list(file)
  const isChange = action === 'new' || action === 'revoke'
  if (!isChange || name === undefined || more.length > 0) {
    throw new UsageError('token takes: new NAME, list, or revoke NAME (see holdfast token --help)')
  }
  return action === 'new' ? create(file, name, values) : revoke(file, name)
}

async function create(file: string, name: string, values: Values): Promise<number> {
  if (!isTokenName(name)) throw new UsageError(`the name of a token ${NAME_RULE}`)
  const scopes = [...new Set(listFlag(values, 'scope'))]
  if (scopes.length === 0 || !scopes.every(isScope)) {
    throw new UsageError(`say what the token may do, with --scope ${SCOPES.join(', --scope ')}`)
  }
  const expiresAt = readExpiry(textFlag(values, 'expires'))
  const id = textFlag(values, 'id') ?? mintTokenId()
  if (!isTokenId(id)) throw new UsageError(`--id ${ID_RULE}`)
  const secret = mintToken()
  await change(file, (entries) => {
    if (entries.some((entry) => entry.name === name)) {
      throw new Error(`there is a token ${name} in ${file}: revoke it first`)
    }
    const end = expiresAt === null ? {} : { expiresAt }
    return [...entries, { name, id, sha256: tokenSha256(secret), scopes, ...end }]
  })
  // The token alone is on stdout, so that a program can take it.
  console.error(
    `holdfast: token ${name} (${scopes.join(', ')}) is in ${file}; it is shown only now`,
  )
  console.log(secret)
  return 0
}

function readExpiry(text: string | null): number | null {
  if (text === null) return null
  const [, count, unit = ''] = /^([1-9]\d{0,6})([smhd])$/.exec(text) ?? []
  if (count !== undefined) return Date.now() + Number(count) * (UNITS_MS[unit] ?? 0)
  throw new UsageError(`--expires must be like 90s, 45m, 12h or 30d, not ${text}`)
}

async function revoke(file: string, name: string): Promise<number> {
  await change(file, (entries) => {
    const left = entries.filter((entry) => entry.name !== name)
    if (left.length === entries.length) throw new Error(`there is no token ${name} in ${file}`)
    return left
  })
  console.log(`holdfast: token ${name} is no longer good`)
  return 0
}

async function list(file: string): Promise<number> {
  const entries = await read(file)
  if (entries === null) throw new Error(`there is no file ${file}`)
  const width = Math.max(0, ...entries.map(({ name }) => name.length))
  for (const { name, id, scopes, expiresAt } of entries) {
    console.log(`${name.padEnd(width)}  ${id}  ${scopes.join(',')}${endOf(expiresAt)}`)
  }
  return 0
}

function endOf(expiresAt: number | undefined): string {
  if (expiresAt === undefined) return ''
  const verb = expiresAt <= Date.now() ? 'expired' : 'expires'
  return `  ${verb} ${new Date(expiresAt).toISOString()}`
}

/** Null if there is no such file. */
async function read(file: string): Promise<readonly TokenEntry[] | null> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return null
    throw new Error(`cannot read ${file}: ${code}`)
  }
  try {
    return parseTokens(text)
  } catch (error) {
    throw new Error(`${file} is no tokens file: ${(error as Error).message}`)
  }
}

type Change = (entries: readonly TokenEntry[]) => readonly TokenEntry[]

/**
 * Replaces the file in one step, so that nobody reads half of it. The new one, which only one
 * process can make, also keeps two commands from overwriting each other.
 */
async function change(file: string, step: Change): Promise<void> {
  const next = `${file}.new`
  const handle = await open(next, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw new Error(`cannot write ${next}: ${error.code}`)
    throw new Error(`another command changes ${file}; if there is none, remove ${next}`)
  })
  try {
    const tokens = step((await read(file)) ?? [])
    await handle.writeFile(`${JSON.stringify({ version: TOKENS_VERSION, tokens }, null, 2)}\n`)
    await handle.sync()
    await rename(next, file)
  } catch (error) {
    await rm(next, { force: true })
    throw error
  } finally {
    await handle.close()
  }
}

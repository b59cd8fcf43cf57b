/** Many nodes on one PostgreSQL: the flags of `serve` for them. */
import { readFileSync, statSync } from 'node:fs'
import type { ClusterOptions } from '../server/index.ts'
import { number, showDefault, text, UsageError, type FlagValues } from './flags.ts'
import { isPostgres } from './store-flags.ts'

/** Options for the parts of the server; all empty on a store for one node. */
type ClusterSettings = {
  readonly limits: { readonly leaseMs?: number }
  readonly node: { readonly advertise?: string; readonly clusterSecret?: string }
  readonly server: { readonly cluster?: ClusterOptions }
}

const LEASE_MS = 10_000

export const CLUSTER_FLAGS = {
  advertise: text('URL', 'the address at which other nodes on the same PostgreSQL reach this one'),
  'cluster-secret-file': text(
    'FILE',
    'the secret by which nodes authenticate each other, the same on all: 32 characters or more, ' +
      'readable only for you',
  ),
  'lease-ms': showDefault(
    number('N', 'on PostgreSQL: how long a dead node blocks its sessions', {
      min: 500,
      max: 3_600_000,
    }),
    LEASE_MS,
  ),
}

const SECRET_CHARS_MIN = 32
/** Forbidden modes. Kubernetes gives a secret to a group, under another owner. */
const MODES_OF_OWN_FILE = 0o077
const MODES_OF_OTHERS_FILE = 0o027

export function readCluster(
  values: FlagValues<typeof CLUSTER_FLAGS>,
  store: string,
): ClusterSettings {
  const { advertise, 'cluster-secret-file': file, 'lease-ms': leaseMs } = values
  if (!isPostgres(store)) {
    const names = Object.keys(CLUSTER_FLAGS) as (keyof typeof CLUSTER_FLAGS)[]
    const given = names.find((name) => values[name] !== null)
    if (given === undefined) return { limits: {}, node: {}, server: {} }
    throw new UsageError(`--${given} needs --store postgres://…: other stores have one node`)
  }
  const limits = { leaseMs: leaseMs ?? LEASE_MS }
  if (advertise === null && file === null) return { limits, node: {}, server: {} }
  if (advertise === null || file === null) {
    throw new UsageError('--advertise and --cluster-secret-file go together')
  }
  const secret = readSecret(file)
  const node = { advertise: checkUrl(advertise), clusterSecret: secret }
  return { limits, node, server: { cluster: { secret } } }
}

function checkUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null
  const isPlain = url !== null && url.href === `${url.origin}/` && /^https?:$/.test(url.protocol)
  if (isPlain) return url.origin
  throw new UsageError('--advertise must be like http://10.0.0.5:7420, without path or password')
}

function readSecret(file: string): string {
  let secret: string
  try {
    const { mode, uid } = statSync(file)
    const modes = uid === process.getuid?.() ? MODES_OF_OWN_FILE : MODES_OF_OTHERS_FILE
    if ((mode & modes) !== 0 && process.platform !== 'win32') {
      throw new UsageError(`${file} is readable for others: chmod 600 ${file}`)
    }
    secret = readFileSync(file, 'utf8').trim()
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError(`cannot read ${file}: ${(error as NodeJS.ErrnoException).code}`)
  }
  if (secret.length >= SECRET_CHARS_MIN) return secret
  throw new UsageError(
    `${file} must hold at least ${SECRET_CHARS_MIN} characters: openssl rand -hex 32 > ${file}`,
  )
}

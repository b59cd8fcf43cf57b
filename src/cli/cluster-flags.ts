/** Many nodes on one PostgreSQL: `--advertise`, `--cluster-secret-file`, `--lease-ms`. */
import { readFileSync, statSync } from 'node:fs'
import type { ClusterOptions } from '../server/index.ts'
import { numberFlag, textFlag, UsageError, type Flags, type Values } from './command.ts'
import { isPostgres, storeName } from './store-flags.ts'

/** What each part is told; nothing where there is only one node ever. */
export type ClusterSettings = {
  readonly limits: { readonly leaseMs?: number }
  readonly node: { readonly advertise?: string; readonly clusterSecret?: string }
  readonly server: { readonly cluster?: ClusterOptions }
}

export const CLUSTER_FLAGS: Flags = {
  advertise: { type: 'string' },
  'cluster-secret-file': { type: 'string' },
  'lease-ms': { type: 'string' },
}

export const CLUSTER_HELP = [
  ['--advertise URL', 'where other nodes on the same PostgreSQL reach this one'],
  ['--cluster-secret-file FILE', 'what nodes know each other by; the same on all of them'],
  ['--lease-ms N', 'how long a node that is gone keeps its sessions from others (10000)'],
] as const

const SECRET_CHARS_MIN = 32
/** Kubernetes hands a secret to a group, under an owner who is not us. */
const OTHERS_MAY = { ofOurs: 0o077, ofAnother: 0o027 }

export function readCluster(values: Values): ClusterSettings {
  const advertise = textFlag(values, 'advertise')
  const file = textFlag(values, 'cluster-secret-file')
  if (!isPostgres(storeName(values))) {
    for (const name of Object.keys(CLUSTER_FLAGS)) {
      if (values[name] === undefined) continue
      throw new UsageError(`--${name} needs --store postgres://…: other stores have one node`)
    }
    return { limits: {}, node: {}, server: {} }
  }
  if ((advertise === null) !== (file === null)) {
    throw new UsageError('--advertise and --cluster-secret-file go together')
  }
  const leaseMs = numberFlag(values, 'lease-ms', { fallback: 10_000, min: 500, max: 3_600_000 })
  const limits = { leaseMs }
  if (advertise === null || file === null) return { limits, node: {}, server: {} }
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
    const isOurs = uid === process.getuid?.()
    const others = isOurs ? OTHERS_MAY.ofOurs : OTHERS_MAY.ofAnother
    if ((mode & others) !== 0 && process.platform !== 'win32') {
      throw new UsageError(`${file} may be read by others: chmod 600 ${file}`)
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

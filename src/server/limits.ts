/** Every bound of the server, in one place, each named with its unit. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { invalid } from '../core/index.ts'

export const SERVER_LIMITS = {
  /** What a body may hold besides the input: names, options, labels. */
  bodyBytesExtra: 65_536,
  /** Bodies with images and files of all requests together; half of it for one principal. */
  largeBodiesBytesMax: 268_435_456,
  /** A request's line and headers together, and how many headers. */
  headerBytesMax: 16_384,
  headersMax: 100,
  /** What a node may add to them when it passes a request on to another. */
  forwardedBytes: 1_024,
  forwardedHeaders: 4,
  /** How long a request's headers, and the whole of it, may take to arrive. */
  headersMs: 10_000,
  requestMs: 60_000,
  /** How long an idle connection is kept. */
  keepAliveMs: 60_000,
  /** Fewer where the system gives fewer descriptors, of which some are kept for all the rest. */
  connectionsMax: 10_000,
  descriptorsKept: 256,
  descriptorsMin: 128,
  /**
   * Requests that wait for the one before them on their connection: what they take in memory, on
   * one connection and on all together.
   */
  pipelinedBytesMax: 262_144,
  pipelinedTotalBytesMax: 67_108_864,
  /** Answers and events that wait for readers which do not take them, of all together. */
  unreadTotalBytesMax: 67_108_864,
  /**
   * Connections that wait to be accepted. When a network is back all clients connect at once, and a
   * client that finds no place waits for seconds.
   */
  backlog: 4_096,
  /** The tokens file: its size, the number of tokens, and the time between two checks. */
  tokensBytesMax: 1_048_576,
  tokensMax: 1_000,
  tokensCheckMs: 200,
  /** How often it is looked whether what goes on may still do so, also where tokens cannot tell. */
  revocationMs: 500,
  revocationBlindMs: 15_000,
  heartbeatMs: 15_000,
  /** Between two checks of the store, and how long it may take to answer. */
  storeCheckMs: 5_000,
  storeAnswerMs: 2_000,
  /** After the drain: how long last answers may take to leave. */
  farewellMs: 500,
} as const

/** Of one client on another machine. */
export const RATE_LIMITS = {
  /** Requests of one client: how many at once, and how many per second after that. */
  requestsBurst: 400,
  requestsPerSecond: 200,
  /** Bad tokens of one client. */
  failuresPerMinute: 20,
  connectionsPerClientMax: 256,
  /** How many clients are remembered. */
  clientsMax: 10_000,
}

/** Of tokens of other issuers, and of the keys that they are verified with. */
export const JWT_LIMITS = {
  /** Between two attempts to read the keys of one issuer, whatever asks for them. */
  cooldownMs: 5_000,
  /** How long the issuer has to answer, and how much. */
  fetchMs: 5_000,
  keysBytesMax: 1_048_576,
  /** How often they are read again, and how long they stay if that fails. */
  keysCheckMs: 600_000,
  keptMs: 86_400_000,
  /** How many verified tokens are known: twice as many as there can be connections. */
  verifiedMax: 20_000,
}
export type JwtLimits = { readonly [Name in keyof typeof JWT_LIMITS]: number }

/** Of forwarding to other nodes. */
export const FORWARD_LIMITS = {
  /** How long a request waits for a session whose owner is gone or about to stop. */
  patienceMs: 30_000,
  /** Between two attempts to find the owner: doubled from the first to the second. */
  againMs: 50,
  againMsMax: 500,
  /** To connect to another node. */
  connectMs: 3_000,
  /** Between two checks whether a node that has not answered yet is alive. */
  aliveMs: 1_000,
  /** Idle connections to one other node. */
  idleSocketsMax: 64,
  /** Messages of a client before its owner is reached: it should wait for the welcome. */
  messagesWaitingMax: 16,
  /**
   * How long a node that stops goes on forwarding, so that load balancers and other nodes notice.
   * Never longer than its drain time.
   */
  lingerMs: 3_000,
  /** How long an owner or an address from the store is used again, and how many are kept. */
  cacheMs: 1_000,
  cachedMax: 10_000,
} as const

/**
 * How many file descriptors the system gives this process: Infinity where it sets no limit, or does
 * not tell. Node raises the limit that can be raised by itself.
 */
export function descriptorLimit(): number {
  try {
    const text =
      process.platform === 'linux'
        ? /^Max open files +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
        : execFileSync('/bin/sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).trim()
    const limit = Number(text)
    return Number.isInteger(limit) && limit > 0 ? limit : Infinity
  } catch {
    // A system without such a limit, or one that does not tell it.
    return Infinity
  }
}

/**
 * A part of the descriptors is kept back for the store, agents, browsers and calls to others. On
 * many nodes a connection may need a second one, to the node that its request is forwarded to.
 */
export function connectionsFor(limit: number, isClustered: boolean): number {
  const { connectionsMax, descriptorsMin, descriptorsKept } = SERVER_LIMITS
  if (limit < descriptorsMin) {
    const why = `the system allows ${limit} open files`
    throw invalid('connections', `need ${descriptorsMin} file descriptors at least: ${why}`)
  }
  const left = limit - Math.min(descriptorsKept, limit / 2)
  return Math.min(connectionsMax, Math.floor(isClustered ? left / 2 : left))
}

/** What a promise gives; null if it takes longer than `ms`. */
export async function within<Value>(ms: number, promise: Promise<Value>): Promise<Value | null> {
  const late = new AbortController()
  try {
    return await Promise.race([promise, sleep(ms, null, { signal: late.signal })])
  } finally {
    late.abort()
  }
}

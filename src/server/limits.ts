/** Every bound of the server, in one place, each named with its unit. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { invalid } from '../core/index.ts'

export const SERVER_LIMITS = {
  /** What a body may hold besides the input: names, options, labels. */
  bodyBytesExtra: 65_536,
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
   * Connections that wait to be accepted. When a network is back all clients come at once, and who
   * finds no place waits for seconds.
   */
  backlog: 4_096,
  /** Of one client on another machine: connections, requests at once, and per second. */
  connectionsPerClientMax: 256,
  requestsBurst: 400,
  requestsPerSecond: 200,
  /** Bad tokens of one client. */
  failuresPerMinute: 20,
  /** How many clients are remembered for that. */
  clientsMax: 10_000,
  /** The tokens file: its size, the number of tokens, and the time between two checks. */
  tokensBytesMax: 1_048_576,
  tokensMax: 1_000,
  tokensCheckMs: 2_000,
  /** Between a change of the file and reading it: the writer may not be done. */
  tokensSettleMs: 50,
  /** How often it is looked whether what goes on may still do so, also where tokens cannot tell. */
  revocationMs: 500,
  revocationBlindMs: 15_000,
  /** Between two signs of life on a stream. */
  heartbeatMs: 15_000,
  /** Between two checks of the store, and how long it may take to answer. */
  storeCheckMs: 5_000,
  storeAnswerMs: 2_000,
  /** After the drain: how long last answers may take to leave. */
  farewellMs: 500,
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

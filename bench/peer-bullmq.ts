/**
 * What a user would build on BullMQ: a queue for each lane with a worker that takes one job at a
 * time, so that the turns of a key run in order, and a caller that waits for its job's result. Redis
 * keeps an append-only file and syncs it every second, as BullMQ's documentation for production says.
 */
import { spawn } from 'node:child_process'
import { createServer } from 'node:http'
import { mkdtempSync, rmSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { freePort } from '../test/support/server-process.ts'
import { endWithParent } from './child.ts'
import { loadPeer } from './peers.ts'

type Job = {
  readonly data: { key: string; input: string }
  waitUntilFinished(events: object): Promise<string>
}
type Queue = {
  setMaxListeners(count: number): void
  add(name: string, data: object, options: object): Promise<Job>
}
type Connection = {
  on(event: 'error', listener: () => void): void
  ping(): Promise<string>
  rpush(key: string, value: string): Promise<number>
}
type BullMq = {
  readonly Queue: new (name: string, options: object) => Queue
  readonly QueueEvents: new (
    name: string,
    options: object,
  ) => {
    setMaxListeners(count: number): void
    waitUntilReady(): Promise<unknown>
  }
  readonly Worker: new (
    name: string,
    run: (job: Job) => Promise<string>,
    options: object,
  ) => {
    waitUntilReady(): Promise<unknown>
  }
}

const LANES = 16
const KEPT = { removeOnComplete: true, removeOnFail: true }

const { Queue, QueueEvents, Worker } = loadPeer('bullmq') as BullMq
const { Redis } = loadPeer('ioredis') as { Redis: new (options: object) => Connection }

const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-redis-'))
const port = await freePort()
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null }
const settings = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--save', '']
const redis = spawn(
  'redis-server',
  ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, ...settings],
  { stdio: 'ignore' },
)
process.once('exit', () => {
  redis.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
})
endWithParent()

const store = new Redis(connection)
// Until it is up; a loss afterwards fails the turns.
store.on('error', () => undefined)
while ((await store.ping().catch(() => '')) !== 'PONG') await setTimeout(50)

const lanes = await Promise.all(Array.from({ length: LANES }, (_, lane) => open(`lane-${lane}`)))

async function open(name: string) {
  const queue = new Queue(name, { connection })
  const events = new QueueEvents(name, { connection })
  // As many as there are callers wait on it.
  events.setMaxListeners(0)
  queue.setMaxListeners(0)
  const worker = new Worker(name, run, { connection, concurrency: 1 })
  await Promise.all([events.waitUntilReady(), worker.waitUntilReady()])
  return { queue, events }
}

async function run({ data: { key, input } }: Job): Promise<string> {
  await store.rpush(`log:${key}`, input)
  return input
}

function laneOf(key: string) {
  let hash = 0
  for (let at = 0; at < key.length; at += 1) hash = (hash * 31 + key.charCodeAt(at)) % LANES
  return lanes[hash] ?? lanes[0]
}

async function turn(key: string, body: string): Promise<string> {
  const { input } = JSON.parse(body) as { input: string }
  const lane = laneOf(key)
  if (lane === undefined) throw new Error('there is no lane')
  const job = await lane.queue.add('turn', { key, input }, KEPT)
  return JSON.stringify({ text: await job.waitUntilFinished(lane.events) })
}

const server = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    turn(request.url ?? '', Buffer.concat(chunks).toString()).then(
      (text) => response.setHeader('content-type', 'application/json').end(text),
      (error: unknown) => response.writeHead(500).end(String(error)),
    )
  })
})
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))

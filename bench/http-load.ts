/** A load over HTTP, from a process of its own, and what the server used meanwhile. */
import { Child } from './child.ts'
import type { Load } from './measure.ts'
import { cpuMicrosOf } from './processes.ts'

export const CALLERS = 64

export type LoadOrder = {
  readonly port: number
  readonly callers: number
  readonly keys: number
  readonly seconds: number
  /** `KEY` in it stands for the key; without it, Holdfast's own. */
  readonly path?: string
  readonly tokens?: readonly string[]
}

/** With the CPU of the server and of all its children. */
export async function loadOn(server: Child, order: LoadOrder): Promise<Load & { cpu: number }> {
  const client = new Child('load', [JSON.stringify(order)])
  try {
    await client.next()
    const before = cpuMicrosOf(server.pid)
    const load = await client.ask<Load>('go')
    return { ...load, cpu: (cpuMicrosOf(server.pid) - before) / load.turns }
  } finally {
    await client.stop()
  }
}

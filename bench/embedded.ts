/** Holdfast in process, on SQLite: keyed turns of an echo agent, each durable. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { openHoldfast } from 'holdfast'
import { drive, type Load } from './measure.ts'

export async function embedded(
  file: string,
  keys: number,
  callers: number,
  seconds: number,
): Promise<Load & { readonly lagP99: number }> {
  const holdfast = await openHoldfast({ store: `sqlite:${file}` })
  const sessions = await Promise.all(
    Array.from({ length: keys }, (_, key) => holdfast.resolve({ key: `key-${key}` })),
  )
  const turn = (caller: number): PromiseLike<unknown> | undefined =>
    sessions[caller % keys]?.turn('hello, is anybody there?')
  await drive(callers, 1, async (caller) => turn(caller))
  const lag = monitorEventLoopDelay({ resolution: 1 })
  lag.enable()
  const load = await drive(callers, seconds, async (caller) => turn(caller))
  const lagP99 = lag.percentile(99) / 1e6
  await holdfast.close()
  return { ...load, lagP99 }
}

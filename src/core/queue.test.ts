import { expect, it } from 'vitest'
import { MemoryStore } from '../stores/memory.ts'
import { Holdfast } from './holdfast.ts'
import type { Runner } from './runner.ts'

/** One session whose first turn runs until it is let end, and the inputs in the order of starts. */
async function busySession() {
  const started: string[] = []
  let end = (): void => undefined
  const first = new Promise<void>((resolve) => (end = resolve))
  const runner: Runner = {
    async *run({ text }) {
      started.push(text.replaceAll('\n\n', ''))
      if (text === 'first') await first
      yield { type: 'delta', text }
      return undefined
    },
  }
  let ids = 0
  const hold = new Holdfast({
    store: new MemoryStore(),
    runners: { agent: runner },
    clock: {
      now: () => 1_000,
      monotonic: () => 1_000,
      after: (ms, run) => {
        const timer = setTimeout(run, ms)
        return () => clearTimeout(timer)
      },
    },
    entropy: { id: () => `id${(ids += 1)}` },
    digest: String,
    node: 'a',
  })
  await hold.authority.start()
  const session = await hold.resolve()
  const turns: PromiseLike<unknown>[] = [session.turn('first')]
  await expect.poll(() => started).toEqual(['first'])
  /** Upper case is submitted, lower case waits; each is collected, under its name as a key. */
  const enter = async (name: string): Promise<void> => {
    const options = { busy: 'collect', idempotencyKey: name.toLowerCase() } as const
    if (name !== name.toLowerCase()) await session.submit(name.toLowerCase(), options)
    else turns.push(session.turn(name, options))
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
  const close = async (): Promise<void> => {
    end()
    await Promise.all(turns)
    await expect.poll(async () => (await session.overview()).queue).toEqual([])
    await expect.poll(async () => (await session.state()).running).toBeNull()
    await hold.close()
  }
  return { session, started, enter, end, close }
}

it.each([
  ['alone', 'a A', ['a']],
  ['before others', 'a b c A', ['a', 'bc']],
  ['between others', 'a b c B', ['a', 'b', 'c']],
  ['behind others', 'a b c C', ['ab', 'c']],
  ['behind a recorded one, which it joins', 'Q a b A', ['qa', 'b']],
  ['before a recorded one, behind which the log has it', 'a b Q c A', ['b', 'qa', 'c']],
])('a waiting request that is submitted keeps its place: %s', async (_, names, expected) => {
  const { started, enter, close } = await busySession()
  for (const name of names.split(' ')) await enter(name)
  await close()
  expect(started).toEqual(['first', ...expected])
})

it('collects neighbours only: no request overtakes another', async () => {
  const { session, started, enter, close } = await busySession()
  for (const name of ['a', 'b']) await enter(name)
  const plain = session.turn('plain')
  await new Promise((resolve) => setTimeout(resolve, 1))
  await enter('c')
  const { queue } = await session.overview()
  expect(queue.map(({ position }) => position)).toEqual([1, 1, 2, 3])
  await close()
  await plain
  expect(started).toEqual(['first', 'ab', 'plain', 'c'])
})

it("reads a caller's signal only if the turn has to wait", async () => {
  const { session, end, close } = await busySession()
  const reads: string[] = []
  const options = (name: string) => ({
    get signal() {
      reads.push(name)
      return undefined
    },
  })
  const waits = session.turn('waits', options('waits'))
  await expect.poll(() => reads).toEqual(['waits'])
  end()
  await waits
  await session.turn('starts at once', options('starts at once'))
  expect(reads).toEqual(['waits'])
  await close()
})

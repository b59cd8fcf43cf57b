/** What `listAsks` promises: the asks that wait, each from the append that opens it on. */
import assert from 'node:assert/strict'
import { PAGE_CHARS, type AskPage, type AskQuery, type Store } from '../../core/store.ts'
import type { Claims, StoreTrial } from './samples.ts'

export const askClaims: Claims = {
  'lists asks in the order in which they were opened, with their sessions': async (trial) => {
    const [one, other] = [
      await trial.create({ key: 'alice', labels: { team: 'blue' } }),
      await trial.create(),
    ]
    await open(trial, other, ['a2'])
    await open(trial, one, ['a2', 'a3'], { after: 1, at: 5_000 })
    assert.deepEqual(await found(trial.store), [`${other} a2`, `${one} a2`, `${one} a3`])
    const { asks, nextCursor } = await trial.store.listAsks({ limit: 9 })
    const { row, body, openedAt } = asks[1]!
    const { id, key, labels, status } = row
    assert.deepEqual([id, key, labels, status], [one, 'alice', { team: 'blue' }, 'waiting'])
    assert.deepEqual([JSON.parse(body), openedAt, nextCursor], [askOf('a2'), 5_000, null])
  },

  'lists no ask that was settled, nor one of a session that is closed or erased': async (trial) => {
    const { store } = trial
    const [one, other] = await trial.createMany(2)
    await open(trial, one!, ['a2', 'a3'])
    await open(trial, other!, ['a2'])
    await trial.append(one!, { after: 2, asks: { opened: [], settled: ['a2', 'never-opened'] } })
    assert.deepEqual(await found(store), [`${one} a3`, `${other} a2`])
    await trial.append(other!, { after: 2, closed: true })
    assert.deepEqual(await found(store), [`${one} a3`])
    await store.erase(other!)
    assert.deepEqual(await found(store), [`${one} a3`])
  },

  'opens and settles no ask by an append that changed nothing': async (trial, store) => {
    const id = await trial.create()
    await open(trial, id, ['a2'])
    const asks = { opened: [stored('a9')], settled: ['a2'] }
    assert.equal(await trial.append(id, { asks }), 'stale')
    assert.equal(await trial.append(id, { after: 2, epoch: 7, asks }), 'stale')
    assert.deepEqual(await found(store), [`${id} a2`])
  },

  'opens and settles asks of many sessions in one step, beside other appends': async (trial) => {
    const ids = await trial.createMany(3)
    await trial.store.append(
      ids.map((id, index) => ({
        ...{ session: id, epoch: 1, after: 1, events: ['{"seq":2}'], snapshot: null, at: 2_000 },
        ...{ closed: false, pending: false, expiresAt: null },
        ...(index === 1 ? { shares: [{ with: 'bob', scopes: ['watch' as const] }] } : {}),
        ...(index === 0 ? {} : { asks: { opened: [stored('a2')], settled: [] } }),
      })),
    )
    const expected = [`${ids[1]} a2`, `${ids[2]} a2`]
    assert.deepEqual((await found(trial.store)).toSorted(), expected)
    assert.deepEqual(await found(trial.store, { visibleTo: ['bob'] }), [`${ids[1]} a2`])
  },

  'lists asks by session, kind and label': async (trial, store) => {
    const blue = await trial.create({ labels: { team: 'blue' } })
    const red = await trial.create({ labels: { team: 'red' } })
    await open(trial, blue, ['a2'])
    await open(trial, red, ['a2'])
    const asks = { opened: [stored('a3', 'a\0b')], settled: [] }
    await trial.append(red, { after: 2, asks })
    assert.deepEqual(await found(store, { session: blue }), [`${blue} a2`])
    assert.deepEqual(await found(store, { session: 'no such session' }), [])
    assert.deepEqual(await found(store, { kind: 'a\0b' }), [`${red} a3`])
    assert.deepEqual(await found(store, { kind: 'a' }), [])
    const label = { name: 'team', value: 'red' }
    assert.deepEqual(await found(store, { label }), [`${red} a2`, `${red} a3`])
    assert.deepEqual(await found(store, { label, kind: 'permission' }), [`${red} a2`])
  },

  'lists asks of sessions that belong to principals, or are shared with them': async (trial) => {
    const { store } = trial
    const [own, shared, foreign] = [
      await trial.create({ principal: 'bob' }),
      await trial.create({ principal: 'alice' }),
      await trial.create({ principal: 'alice' }),
    ]
    const hidden = await trial.create({ principal: 'bob', internal: true })
    for (const id of [own, shared, foreign, hidden]) await open(trial, id, ['a2'])
    await trial.append(shared, { after: 2, shares: [{ with: '@team', scopes: ['answer'] }] })
    const visibleTo = ['bob', '@team']
    assert.deepEqual(await found(store, { visibleTo }), [`${own} a2`, `${shared} a2`])
    assert.deepEqual(await found(store, { visibleTo: [] }), [])
    assert.equal((await found(store)).length, 3)
    await trial.append(shared, { after: 3, shares: [] })
    assert.deepEqual(await found(store, { visibleTo }), [`${own} a2`])
  },

  'pages through asks without repeating or skipping one, while others come and go': async (
    trial,
  ) => {
    const ids = await trial.createMany(6)
    for (const id of ids) await open(trial, id, ['a2'])
    const seen: string[] = []
    let cursor: string | null = null
    for (let round = 0; round === 0 || cursor !== null; round += 1) {
      const page: AskPage = await trial.store.listAsks({
        limit: 2,
        ...(cursor === null ? {} : { cursor }),
      })
      seen.push(...page.asks.map(nameOf))
      cursor = page.nextCursor
      // The last of the page is settled, and another is opened after all.
      const last = page.asks.at(-1)!.row.id
      const asks = { opened: [stored('a3')], settled: ['a2'] }
      if (round < 2) await trial.append(last, { after: 2, asks })
    }
    const expected = [...ids.map((id) => `${id} a2`), `${ids[1]} a3`, `${ids[3]} a3`]
    assert.deepEqual(seen, expected)
  },

  'ends a page of asks that are large, and goes on after it': async (trial, store) => {
    const id = await trial.create()
    const large = { id: 'a2', kind: 'permission', body: JSON.stringify('x'.repeat(PAGE_CHARS)) }
    const opened = [large, stored('a3'), stored('a4')]
    await trial.append(id, { asks: { opened, settled: [] }, status: 'waiting' })
    const first = await store.listAsks({ limit: 9 })
    assert.deepEqual([first.asks.length, first.asks[0]?.body], [1, large.body])
    assert.ok(first.nextCursor !== null)
    const rest = await store.listAsks({ limit: 9, cursor: first.nextCursor })
    assert.deepEqual([rest.asks.map(nameOf), rest.nextCursor], [[`${id} a3`, `${id} a4`], null])
    await assert.rejects(store.listAsks({ limit: 1, cursor: 'nonsense!' }), {
      code: 'invalid_field',
    })
  },
}

const askOf = (id: string) => ({ id, question: 'may I? \uD800 \0' })

function stored(id: string, kind = 'permission') {
  return { id, kind, body: JSON.stringify(askOf(id)) }
}

async function open(
  trial: StoreTrial,
  session: string,
  asks: readonly string[],
  changes: { readonly after?: number; readonly at?: number } = {},
): Promise<void> {
  const opened = asks.map((id) => stored(id))
  const append = { asks: { opened, settled: [] }, status: 'waiting', ...changes } as const
  assert.equal(await trial.append(session, append), 'appended')
}

async function found(store: Store, query: Partial<AskQuery> = {}): Promise<readonly string[]> {
  return (await store.listAsks({ limit: 9, ...query })).asks.map(nameOf)
}

function nameOf({ row, body }: AskPage['asks'][number]): string {
  return `${row.id} ${(JSON.parse(body) as { readonly id: string }).id}`
}

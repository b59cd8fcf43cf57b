/** What a store promises about principals: each has its own keys, and lists what it may see. */
import assert from 'node:assert/strict'
import type { Share } from '../../core/state.ts'
import type { Claims } from './samples.ts'

const watch = (principal: string): Share => ({ with: principal, scopes: ['watch'] })

export const principalClaims: Claims = {
  'gives each principal its own keys': async (trial) => {
    const alice = await trial.create({ principal: 'alice', key: 'same' })
    const bob = await trial.create({ principal: 'bob', key: 'same' })
    assert.notEqual(alice, bob)
    const found = await trial.reserve({ principal: 'alice', key: 'same' })
    assert.deepEqual(found, { type: 'found', id: alice })
    await trial.append(alice, { closed: true })
    const again = await trial.create({ principal: 'alice', key: 'same' })
    assert.deepEqual(await trial.list({ principal: 'bob', key: 'same', state: 'open' }), [bob])
    assert.deepEqual(await trial.list({ principal: 'alice', key: 'same' }), [again, alice])
    assert.deepEqual(await trial.list({ key: 'same', state: 'open' }), [again, bob])
  },

  'gives a key of one principal to exactly one of many that ask at once': async (trial) => {
    const [ours, theirs] = await Promise.all([
      trial.race(8, { principal: 'alice', key: 'same' }),
      trial.race(8, { principal: 'bob', key: 'same' }),
    ])
    for (const answers of [ours, theirs]) {
      assert.equal(answers.filter(({ type }) => type === 'created').length, 1)
      assert.equal(new Set(answers.map(({ id }) => id)).size, 1)
    }
    assert.notEqual(ours[0]?.id, theirs[0]?.id)
  },

  'says whom a session belongs to, and what it is shared for': async (trial, store) => {
    const { position } = await store.changes(null, 0)
    const id = await trial.create({ principal: 'alice' })
    const before = (await store.read(id, 0, 0)).row
    assert.deepEqual([before?.principal, before?.shares], ['alice', []])
    const shares: readonly Share[] = [watch('bob'), { with: '@team', scopes: ['talk', 'answer'] }]
    await trial.append(id, { shares })
    await trial.append(id, { after: 2 })
    const { row } = await trial.claim(id)
    assert.deepEqual([row.principal, row.shares], ['alice', shares])
    const { changes } = await store.changes(position, 9)
    assert.deepEqual(changes.at(-1)?.row, { ...row })
    assert.deepEqual((await store.list({ limit: 9 })).sessions[0]?.shares, shares)
  },

  'lists what belongs to principals, or is shared with them, in pages': async (trial, store) => {
    const [own, shared, group, foreign] = [
      await trial.create({ principal: 'bob' }),
      await trial.create({ principal: 'alice' }),
      await trial.create({ principal: '@team' }),
      await trial.create({ principal: 'alice' }),
    ]
    await trial.append(shared, { shares: [watch('carol'), watch('bob')] })
    await trial.append(foreign, { shares: [watch('bobby')] })
    const visibleTo = ['bob', '@team']
    assert.deepEqual(await trial.list({ visibleTo }), [group, shared, own])
    const first = await store.list({ visibleTo, limit: 1 })
    assert.deepEqual(first.sessions[0]?.id, group)
    const cursor = first.nextCursor ?? ''
    assert.deepEqual(await trial.list({ visibleTo, cursor }), [shared, own])
    assert.deepEqual(await trial.list({ visibleTo: [] }), [])
    assert.deepEqual(await trial.list({ visibleTo: ['mallory'] }), [])
    assert.deepEqual(await trial.list({ principal: 'bob', visibleTo }), [own])
  },

  'lists a session no more when it is no longer shared': async (trial) => {
    const id = await trial.create({ principal: 'alice' })
    await trial.append(id, { shares: [watch('bob'), watch('carol')] })
    await trial.append(id, { after: 2, shares: [watch('carol')] })
    assert.deepEqual(await trial.list({ visibleTo: ['bob'] }), [])
    assert.deepEqual(await trial.list({ visibleTo: ['carol'] }), [id])
    await trial.append(id, { after: 3, closed: true })
    assert.deepEqual(await trial.list({ visibleTo: ['carol'] }), [id])
  },

  'reads a session only for those it belongs to or is shared with': async (trial, store) => {
    const id = await trial.create({ principal: 'alice' })
    const shares = [watch('bob'), watch('nul\0'), watch('lone\ud800'), watch('"')]
    await trial.append(id, { shares })
    const other = await trial.create({ principal: 'bob' })
    const whole = await store.read(id, 0, 9)
    assert.equal(whole.events.length, 2)
    for (const one of ['alice', ...shares.map((share) => share.with)]) {
      assert.deepEqual(await store.read(id, 0, 9, ['mallory', one]), whole, one)
    }
    for (const visibleTo of [[], [''], ['mallory'], ['bo', 'bob%', '["bob"]', 'Alice'], [other]]) {
      assert.deepEqual(await store.read(id, 0, 9, visibleTo), { row: null, events: [] })
    }
    assert.deepEqual(await store.read('missing', 0, 9, ['alice']), { row: null, events: [] })
    assert.equal((await store.read(other, 0, 0, ['bob'])).row?.id, other)
    await trial.append(id, { after: 2, shares: [watch('bob')] })
    assert.equal((await store.read(id, 0, 0, ['nul\0'])).row, null)
    assert.equal((await store.read(id, 0, 0, ['bob'])).row?.id, id)
  },

  'does not change the shares by an append that is stale': async (trial, store) => {
    const id = await trial.create({ principal: 'alice' })
    assert.equal(await trial.append(id, { epoch: 9, shares: [watch('bob')] }), 'stale')
    assert.deepEqual((await store.read(id, 0, 0)).row?.shares, [])
    assert.deepEqual(await trial.list({ visibleTo: ['bob'] }), [])
  },

  'keeps the principal of an erased session, and nothing that it was shared for': async (
    trial,
    store,
  ) => {
    const id = await trial.create({ principal: 'alice' })
    await trial.append(id, { shares: [watch('bob')], closed: true })
    assert.equal(await store.erase(id), true)
    const { row } = await store.read(id, 0, 0)
    assert.deepEqual([row?.principal, row?.shares, row?.state], ['alice', [], 'erased'])
    assert.deepEqual(await trial.list({ visibleTo: ['alice', 'bob'] }), [])
  },

  'keeps every character of a principal': async (trial) => {
    const names = ['"', "quo'te", 'nul\0', 'lone\ud800', 'https://issuer.example a|b', '%', '_']
    for (const principal of names) {
      const id = await trial.create({ principal, key: 'k' })
      const other = await trial.create({ principal: 'alice' })
      await trial.append(other, { shares: [watch(principal)] })
      assert.deepEqual(await trial.list({ visibleTo: [principal] }), [other, id])
    }
  },

  'keeps an audit in order, in pages': async (_, store) => {
    if (store.addAudit === undefined) return
    const records = ['a', 'b', 'c'].map((text, index) => {
      return { at: 1_000 + index, address: index === 1 ? null : '192.0.2.1', body: `{"${text}":1}` }
    })
    await store.addAudit(records.slice(0, 2))
    await store.addAudit(records.slice(2))
    const all = (await store.readAudit?.(0, 9)) ?? []
    assert.deepEqual(
      all.map(({ position: _position, ...record }) => record),
      records,
    )
    const [first, second, third] = all.map(({ position }) => position)
    assert.ok(first! < second! && second! < third!)
    assert.deepEqual(await store.readAudit?.(0, 1), all.slice(0, 1))
    assert.deepEqual(await store.readAudit?.(second!, 9), all.slice(2))
    assert.deepEqual(await store.readAudit?.(third!, 9), [])
  },

  'finds the newest record of the audit that begins so': async (_, store) => {
    if (store.addAudit === undefined || store.lastAudit === undefined) return
    assert.equal(await store.lastAudit(''), null)
    const at = (body: string) => ({ at: 1_000, address: null, body })
    await store.addAudit(['{"a%":1}', '{"a%":2}', '{"ab":3}', '{"é":4}'].map(at))
    const bodyAt = async (start: string) => (await store.lastAudit?.(start))?.body ?? null
    assert.equal(await bodyAt('{"a%'), '{"a%":2}')
    assert.equal(await bodyAt('{"é"'), '{"é":4}')
    assert.equal(await bodyAt('{"a_'), null)
    assert.equal(await bodyAt('{"A'), null)
    const [first] = (await store.readAudit?.(0, 1)) ?? []
    assert.deepEqual(await store.lastAudit('{"a%":1'), first)
  },

  'forgets addresses of the audit before the records': async (_, store) => {
    if (store.addAudit === undefined) return
    const at = (time: number) => ({ at: time, address: '192.0.2.1', body: '{}' })
    await store.addAudit([at(10), at(20), at(30)])
    const before = (await store.readAudit?.(0, 9)) ?? []
    await store.pruneAudit?.({ recordsAt: 20, addressesAt: 30 })
    const [second, third] = before.slice(1)
    assert.deepEqual(await store.readAudit?.(0, 9), [{ ...second, address: null }, third])
    await store.pruneAudit?.({ recordsAt: 99, addressesAt: 99 })
    assert.deepEqual(await store.readAudit?.(0, 9), [])
    await store.addAudit([at(40)])
    const [later] = (await store.readAudit?.(0, 9)) ?? []
    assert.ok(later !== undefined && later.position > third!.position)
  },

  'counts the open sessions of a principal, up to a number': async (trial, store) => {
    const count = (most: number) => store.usage('alice', 'openSessions', most)
    assert.equal(await count(9), 0)
    const [first] = [await trial.create({ principal: 'alice' }), await trial.create()]
    await trial.create({ principal: 'alice', key: 'k' })
    await trial.create({ principal: 'alice', internal: true })
    assert.deepEqual([await count(9), await count(1), await count(0)], [2, 1, 0])
    await trial.append(first, { closed: true })
    assert.equal(await count(9), 1)
    await store.erase(first)
    assert.equal(await count(9), 1)
  },

  'counts the bytes of all events of a principal that are not erased': async (trial, store) => {
    const count = () => store.usage('alice', 'storedBytes', 0)
    assert.equal(await count(), 0)
    await trial.create({ principal: 'bob' })
    const first = await trial.create({ principal: 'alice', body: '{"text":"é"}' })
    const second = await trial.create({ principal: 'alice', body: '{}' })
    assert.equal(await count(), 13 + 2)
    assert.equal(await trial.append(first, { events: ['{"a":1}', '{"b":"€"}'] }), 'appended')
    assert.equal(await count(), 15 + 7 + 11)
    assert.equal(await trial.append(first, { epoch: 9, after: 3, events: ['{}'] }), 'stale')
    assert.equal(await count(), 33)
    await trial.append(first, { after: 3, events: ['[]'], closed: true })
    assert.equal(await count(), 35)
    await store.erase(first)
    assert.equal(await count(), 2)
    await trial.append(second, { events: ['[]'] })
    assert.equal(await count(), 4)
  },
}

/**
 * Planted bugs: each is one small change of the compiled code that breaks one invariant, and each
 * must be noticed within `SEEDS_MAX` seeds. A check that cannot fail is no check.
 */
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { check } from './checker.ts'
import type { Modules } from './modules.ts'
import { HELD_MUTANTS, WIRE_MUTANTS } from './wire/mutants.ts'
import { checkHeld } from './wire/check-held.ts'
import { runHeldWorld } from './wire/held-world.ts'
import { checkWire } from './wire/checker.ts'
import { runWireWorld } from './wire/world.ts'
import { runWorld } from './world.ts'

export type Mutant = {
  readonly name: string
  /** Below the compiled `src`. */
  readonly file: string
  /**
   * Must be there exactly once: if it is not, the code has moved on and the mutant has to follow.
   */
  readonly find: string
  readonly replace: string
  /** The invariant whose check must object. */
  readonly catches: string
}

const CORE_MUTANTS: readonly Mutant[] = [
  {
    name: 'the store takes appends under any epoch',
    file: 'stores/memory.js',
    find: 'entry.epoch !== epoch || entry.row.seq !== after',
    replace: 'entry.row.seq !== after',
    catches: 'I5',
  },
  {
    name: 'a claim gives out the old epoch',
    file: 'stores/memory.js',
    find: 'entry.epoch += 1;',
    replace: '',
    catches: 'I5',
  },
  {
    name: 'a claim takes a session from a living node',
    file: 'stores/memory.js',
    find: 'owner !== null && owner !== node && this.#leases.isAlive(owner)',
    replace: 'false',
    catches: 'I2',
  },
  {
    name: 'a key is reserved without looking whether it is taken',
    file: 'stores/rows.js',
    find: 'if (holder !== undefined)',
    replace: 'if (explicit && holder !== undefined)',
    catches: 'I1',
  },
  {
    name: 'a closed session keeps its key',
    file: 'stores/memory.js',
    find: 'this.#keys.delete(keyName(entry.row));',
    replace: '{}',
    catches: 'I1',
  },
  {
    name: 'internal sessions are listed',
    file: 'stores/memory-lists.js',
    find: '(row.internal && !isSweep(query))',
    replace: 'false',
    catches: 'I1',
  },
  {
    name: 'effects do not wait for the append',
    file: 'core/ledger.js',
    find: 'const outcome = await this.#tools.commits.append(this.#appendOf(batch));',
    replace: `void this.#tools.commits.append(this.#appendOf(batch)).catch(() => undefined);
            const outcome = await 'appended';`,
    catches: 'I4',
  },
  {
    name: 'callers are told before the append is durable',
    file: 'core/commits.js',
    find: 'this.#decided.push({ end: this.events.length, answer: () => settle(events), refuse });',
    replace: `settle(events);
            this.#decided.push({ end: this.events.length, answer: () => undefined, refuse });`,
    catches: 'I4',
  },
  {
    name: 'a failed append is taken for a good one',
    file: 'core/ledger.js',
    find: '            this.lose(asHoldfastError(error));',
    replace: '            this.#committed(batch);',
    catches: 'I4',
  },
  {
    name: 'a stale append is taken for a good one',
    file: 'core/ledger.js',
    find: `outcome === 'appended'`,
    replace: `outcome !== 'never'`,
    catches: 'I4',
  },
  {
    name: 'a snapshot is of the state before its events',
    file: 'core/ledger.js',
    find: 'isDue ? snapshotOf(session,',
    replace: 'isDue ? snapshotOf(this.#session,',
    catches: 'I4',
  },
  {
    name: 'events have the time of a clock that was set back',
    file: 'core/ledger.js',
    find: 'return Math.max(this.#tools.clock.now(), this.ahead.updatedAt);',
    replace: 'return this.#tools.clock.now();',
    catches: 'I4',
  },
  {
    name: 'a request goes to the front of the queue',
    file: 'core/queue.js',
    find: 'this.#requests.push(queued);',
    replace: 'this.#requests.unshift(queued);',
    catches: 'I3',
  },
  {
    name: 'a collected request overtakes those before it',
    file: 'core/queue.js',
    find: 'for (const request of this.#requests.slice(index)) {',
    replace: `const rest = this.#requests.slice(index);
        const isNext = (request) => request === rest[0] || (request.busy === 'collect' && request.state === 'waiting');
        this.#requests = [...this.#requests.slice(0, index), ...rest.filter(isNext), ...rest.filter((request) => !isNext(request))];
        for (const request of this.#requests.slice(index)) {`,
    catches: 'I3',
  },
  {
    name: 'a moved turn pushes the turns of others back',
    file: 'core/turns.js',
    find: 'return queued.map((waiting) => (mayMove(waiting, by) ? (next.next().value ?? waiting) : waiting));',
    replace: 'return [...order, ...queued.filter((waiting) => !mayMove(waiting, by))];',
    catches: 'I3',
  },
  {
    name: 'a turn is moved in the log alone',
    file: 'core/queue.js',
    find: "if (batch.events.some(({ type }) => type === 'turn.moved')) {",
    replace: 'if (false) {',
    catches: 'I3',
  },
  {
    name: 'the queue does not look whether a turn runs',
    file: 'core/queue.js',
    find: 'while (batch.session.running === null && batch.session.closed === null)',
    replace: 'while (batch.session.closed === null)',
    catches: 'I11',
  },
  {
    name: 'a request is refused with 429 although it was admitted',
    file: 'core/queue.js',
    find: `                if (request.state !== 'waiting')
                    return;
                settle();`,
    replace: '                settle();',
    catches: 'I11',
  },
  {
    name: 'a waiting request that is cancelled keeps its place',
    file: 'core/queue.js',
    find: 'this.#remove(found);',
    replace: '',
    catches: 'I11',
  },
  {
    name: 'a new owner forgets what the interrupted turn had said',
    file: 'core/loading.js',
    find: 'await saidBefore(this.#context, folded.session)',
    replace: 'null',
    catches: 'I4',
  },
  {
    name: 'requests that wait are forgotten when the hold ends',
    file: 'core/live.js',
    find: 'this.queue.lose(error);',
    replace: '',
    catches: 'rest',
  },
  {
    name: 'callers of a turn are forgotten when the hold ends',
    file: 'core/live.js',
    find: 'this.#turns.fail(error);',
    replace: '',
    catches: 'rest',
  },
  {
    name: 'a runner that asks is forgotten when the hold ends',
    file: 'core/live.js',
    find: `        for (const settle of this.#asking.values())
            settle({ outcome: 'withdrawn' });`,
    replace: '',
    catches: 'I8',
  },
  {
    name: 'a runner is not told of an ask that is settled with its opening',
    file: 'core/live.js',
    find: 'if (settled !== undefined)',
    replace: 'if (settled === null)',
    catches: 'I8',
  },
  {
    name: 'timers outlive the hold',
    file: 'core/live.js',
    find: `        this.#alarms.clear();
        this.watchers.clear();`,
    replace: `        this.watchers.clear();`,
    catches: 'rest',
  },
  {
    name: 'a run is not told that the session is lost',
    file: 'core/live.js',
    find: `        this.#released = error;
        this.#endRun(error);`,
    replace: '        this.#released = error;',
    catches: 'I2',
  },
  {
    name: 'a new owner forgets the grace times that run',
    file: 'core/alarms.js',
    find: `        for (const { id, graceUntil } of attachments)
            this.#lapse(id, graceUntil);`,
    replace: '',
    catches: 'rest',
  },
  {
    name: 'the idempotency key of a turn is forgotten when it ends',
    file: 'core/request-keys.js',
    find: 'const known = turnInSession(session, key) ?? this.#keptTurn(key);',
    replace: 'const known = turnInSession(session, key);',
    catches: 'I11',
  },
  {
    name: 'idempotency keys of before a session was loaded are not looked up in the store',
    file: 'core/request-keys.js',
    find: 'this.#isWhole = isNew;',
    replace: 'this.#isWhole = true;',
    catches: 'I11',
  },
  {
    name: 'an append does not carry its idempotency keys',
    file: 'core/ledger.js',
    find: 'if (added.length === 0)',
    replace: 'if (added.length < 9)',
    catches: 'I11',
  },
  {
    name: 'a request key that is kept is passed over',
    file: 'core/request-keys.js',
    find: 'return known.turn;',
    replace: 'return null;',
    catches: 'I11',
  },
  {
    name: 'a follower of all asks that is gone still counts',
    file: 'core/answerers.js',
    find: 'this.#here.delete(said);',
    replace: '',
    catches: 'I8',
  },
  {
    name: 'asks do not wait for a follower of all asks',
    file: 'core/live.js',
    find: 'this.holder.answerers.counts(this.session, kind)',
    replace: 'false',
    catches: 'I8',
  },
  {
    name: 'asks that were settled are still listed',
    file: 'stores/memory.js',
    find: 'ask.session !== session || !settled.includes(ask.id)',
    replace: 'true',
    catches: 'I8',
  },
  {
    name: 'asks outlive their turn',
    file: 'core/turns.js',
    find: 'return [...asks, ...message, terminalEvent(id, end)];',
    replace: 'return [...message, terminalEvent(id, end)];',
    catches: 'I8',
  },
  {
    name: 'asks outlive their owner',
    file: 'core/session.js',
    find: '...withdrawAsks(session, running.id),',
    replace: '',
    catches: 'I8',
  },
  {
    name: 'an ask can be answered again',
    file: 'core/asks.js',
    find: 'session.asks = session.asks.filter((ask) => ask.id !== event.ask);',
    replace: '',
    catches: 'I8',
  },
  {
    name: 'a new owner does not interrupt what ran',
    file: 'core/session.js',
    find: `{ type: 'turn.interrupted', turn: running.id, reason: command.reason },`,
    replace: '',
    catches: 'I3',
  },
  {
    name: 'a session closes without its queue',
    file: 'core/closing.js',
    find: 'running === null ? queued : [running, ...queued]',
    replace: 'running === null ? [] : [running]',
    catches: 'I9',
  },
  {
    name: 'a session always closes with its last holder',
    file: 'core/closing.js',
    find: `left.length === 0 && session.reconnect !== 'reopen'`,
    replace: 'left.length === 0',
    catches: 'I10',
  },
  {
    name: 'a client may come back early although work has started',
    file: 'core/attachments.js',
    find: 'return session.turns === 0;',
    replace: 'return true;',
    catches: 'I10',
  },
  {
    name: 'a follower misses the event at the floor of the tail',
    file: 'core/feed.js',
    find: 'position.seq < tail.floor',
    replace: 'position.seq + 1 < tail.floor',
    catches: 'I4',
  },
  {
    name: 'a follower sees the last event of a replay again',
    file: 'core/feed.js',
    find: 'item.seq <= position.seq)',
    replace: 'item.seq < position.seq)',
    catches: 'I4',
  },
  {
    name: 'the floor stays behind when nobody follows',
    file: 'core/feed.js',
    find: `            this.floor = item.seq;
            return false;`,
    replace: '            return false;',
    catches: 'I4',
  },
  {
    name: 'the floor stays behind when the last follower goes',
    file: 'core/feed.js',
    find: '        this.floor = this.#items.findLast(({ delta }) => delta === 0)?.seq ?? this.floor;',
    replace: '',
    catches: 'I4',
  },
  {
    name: 'deltas are forgotten when others start to follow',
    file: 'core/feed.js',
    find: 'this.#rebuild(this.#items.filter(({ delta }) => delta > 0));',
    replace: 'this.#rebuild([]);',
    catches: 'I4',
  },
  {
    name: 'a message that its agent does not take is lost',
    file: 'core/queue.js',
    find: 'if (!isTaken)',
    replace: 'if (isTaken === null)',
    catches: 'I3',
  },
  {
    name: 'the key of a message that steers is not recorded',
    file: 'core/turns.js',
    find: "return [{ type: 'turn.steering', turn, input, ...optionalKeys(keys), ...recordedBy(by) }];",
    replace: "return [{ type: 'turn.steering', turn, input, ...recordedBy(by) }];",
    catches: 'I11',
  },
  {
    name: 'what a runner says after the end is heard',
    file: 'core/runs.js',
    find: `            return;
        this.#over = true;`,
    replace: '            return;',
    catches: 'I3',
  },
  {
    name: 'a runner that does not listen is waited for',
    file: 'core/runs.js',
    find: 'this.#cancelTimer = clock.after(limits.cancelGraceMs, () => this.#end({ ...stop, reply: this.#last() }));',
    replace: '',
    catches: 'I3',
  },
  {
    name: 'a node trusts its lease for ever',
    file: 'core/lease.js',
    find: 'this.#holder.clock.monotonic() < this.#heldUntil',
    replace: 'this.#heldUntil > 0',
    catches: 'I5',
  },
  {
    name: 'a lease is counted from its answer',
    file: 'core/lease.js',
    find: 'sentAt + limits.leaseMs * 0.8',
    replace: 'clock.monotonic() + limits.leaseMs * 3',
    catches: 'I5',
  },
  {
    name: 'a node acts on what it wrote although its lease has ended',
    file: 'core/commits.js',
    find: `            // A process that was frozen meanwhile must not act on this: another node may own the session.
            this.#assertMayWrite();`,
    replace: '',
    catches: 'I5',
  },
  {
    name: 'an asynchronous request joins a turn that others wait behind',
    file: 'core/turns.js',
    find: 'joins === last.id',
    replace: 'true',
    catches: 'I3',
  },
  {
    name: 'a session is loaded twice at once',
    file: 'core/held-sessions.js',
    find: 'this.#arriving.set(id, coming);',
    replace: '',
    catches: 'I2',
  },
  {
    name: 'a load is not known to those who ask at the same time',
    file: 'core/authority.js',
    find: `            if (arriving === undefined)
                break;`,
    replace: `            if (arriving === undefined && (await true))
                break;`,
    catches: 'I2',
  },
  {
    name: 'clients are forgotten with the node that they were at',
    file: 'core/session.js',
    find: ' || attachments.length > 0',
    replace: '',
    catches: 'rest',
  },
  {
    name: 'a turn that ends while it waits takes the deltas of another along',
    file: 'core/feed.js',
    find: ` && 'turn' in event && event.turn === turn`,
    replace: '',
    catches: 'I4',
  },
  {
    name: 'a turn whose last word cannot be written never ends',
    file: 'core/live.js',
    find: `this.post({ type: 'finish', turn, end }).catch(`,
    replace: `Promise.resolve().catch(`,
    catches: 'I3',
  },
  {
    name: 'a busy session is let go',
    file: 'core/held-sessions.js',
    find: 'if (live.idle)',
    replace: 'if (live.session !== null)',
    catches: 'I3',
  },
  {
    name: 'sessions of dead nodes are not picked up',
    file: 'stores/memory.js',
    find: 'return pending && (owner === null || owner === node || !this.#leases.isAlive(owner));',
    replace: 'return false;',
    catches: 'I3',
  },
]

export const MUTANTS: readonly Mutant[] = [...CORE_MUTANTS, ...WIRE_MUTANTS, ...HELD_MUTANTS]

/** A mutant is caught within so many seeds, or the checks are too weak. */
export const SEEDS_MAX = 600

export type Caught = { readonly name: string; readonly seeds: number; readonly message: string }

/** The compiled `src` beside this file, which must be compiled too. */
const COMPILED = fileURLToPath(new URL('../../src', import.meta.url))

const PACKAGES = dirname(dirname(fileURLToPath(import.meta.resolve('ws/package.json'))))

/** Runs worlds on the mutant until the right check objects; null if none does. */
export async function hunt(mutant: Mutant): Promise<Caught | null> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-mutant-'))
  try {
    const modules = await plant(mutant, folder)
    for (let seed = 1; seed <= SEEDS_MAX; seed += 1) {
      const world = { seed, modules, size: 'large' } as const
      const violations = HELD_MUTANTS.includes(mutant)
        ? checkHeld(await runHeldWorld(world))
        : WIRE_MUTANTS.includes(mutant)
          ? checkWire(await runWireWorld(world))
          : check(await runWorld(world))
      const found = violations.find(({ invariant }) => invariant === mutant.catches)
      if (found !== undefined) return { name: mutant.name, seeds: seed, message: found.message }
    }
    return null
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

export async function plant(
  { name, file, find, replace }: Mutant,
  folder: string,
): Promise<Modules> {
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  for (const part of ['browsers', 'cdp', 'client', 'core', 'doors', 'schema', 'stores', 'wire']) {
    cpSync(join(COMPILED, part), join(folder, part), { recursive: true })
  }
  // `holdfast/cdp` imports `ws`.
  symlinkSync(PACKAGES, join(folder, 'node_modules'))
  const path = join(folder, file)
  const source = readFileSync(path, 'utf8')
  const count = source.split(find).length - 1
  if (count !== 1) throw new Error(`"${name}": found ${count} times in ${file}, not once`)
  writeFileSync(
    path,
    source.replace(find, () => replace),
  )
  const load = (module: string): Promise<unknown> =>
    import(pathToFileURL(join(folder, module)).href)
  const core = (await load('core/index.js')) as Modules['core']
  const { MemoryStore } = (await load('stores/memory.js')) as Pick<Modules, 'MemoryStore'>
  const part = async <Name extends keyof Modules>(module: string, name: Name) =>
    ((await load(module)) as Pick<Modules, Name>)[name]
  return {
    core,
    MemoryStore,
    Hub: await part('doors/connect/hub.js', 'Hub'),
    Connection: await part('doors/connect/connection.js', 'Connection'),
    connectService: await part('doors/connect/entry.js', 'connectService'),
    connect: await part('client/index.js', 'connect'),
    HeldConnection: await part('cdp/connection.js', 'HeldConnection'),
    heldService: await part('doors/cdp/held.js', 'heldService'),
    AttachedClient: await part('doors/cdp/attached-client.js', 'AttachedClient'),
  }
}

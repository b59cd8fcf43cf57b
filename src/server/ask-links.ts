/**
 * Links to one ask: what a notification has, to be opened on a phone. Its bearer sees what is
 * asked and how it was settled, and may answer; of the session it sees nothing else, and no other
 * route takes it.
 *
 * A link is sealed (`sealed.ts`): it is stored nowhere, is good on every node, for a short time,
 * and as an answer only as long as the ask waits.
 */
import { createHmac } from 'node:crypto'
import { bearerToken } from './access.ts'
import { askUnknown, outcomeOf } from '../core/asks.ts'
import { HoldfastError, type Ask, type Holdfast } from '../core/index.ts'
import { linkPrincipal, type AskOutcome } from '../core/state.ts'
import type { EventOf, SessionEvent } from '../core/events.ts'
import { json, routes, sessionOfPath, type Route } from '../doors/route.ts'
import type { Exchange } from '../doors/exchange.ts'
import { serverUrl } from '../doors/native/sessions.ts'
import * as schemas from '../doors/native/schemas.ts'
import { contract, EXACT, optional, orNull, oneOf } from '../schema/contract.ts'
import { Type } from '../schema/typebox.ts'
import { AnswerRequest, readAnswerBody } from '../wire/bodies.ts'
import { openSealed, sealedText } from './sealed.ts'
import { askLinkUrl } from './webhooks/ask-link-url.ts'

const PREFIX = 'hfa_'
const LIFE_MS = 3_600_000
const LIFE_MS_MAX = 86_400_000
/** How far behind an ask its outcome is looked for. */
const LOOKED_THROUGH_MAX = 4_096

type AskLink = {
  /** By which its answer is known in the log. */
  readonly id: string
  readonly session: string
  readonly ask: string
  /** Milliseconds since 1970. */
  readonly expiresAt: number
}

export class AskLinks {
  readonly #holdfast: Holdfast
  readonly #readKey: () => Promise<Buffer>

  /** `readKey`: 32 bytes, the same on all nodes and after a restart. */
  constructor(holdfast: Holdfast, readKey: () => Promise<Buffer>) {
    this.#holdfast = holdfast
    this.#readKey = async () =>
      createHmac('sha256', await readKey())
        .update('ask links')
        .digest()
  }

  async make(session: string, ask: string, lifeMs = LIFE_MS) {
    const { clock, entropy } = this.#holdfast.authority
    const link: AskLink = { id: entropy.id(), session, ask, expiresAt: clock.now() + lifeMs }
    return { ...link, token: sealedText(PREFIX, await this.#readKey(), link) }
  }

  /** Throws `unauthorized`, without saying why it is not good. */
  async read(token: string | undefined): Promise<AskLink> {
    const link = openSealed(PREFIX, await this.#readKey(), token ?? '') as AskLink | null
    if (link !== null && link.expiresAt > this.#holdfast.authority.clock.now()) return link
    throw new HoldfastError('unauthorized', 'the link to the ask is not good, or no longer')
  }

  /** From what is stored: the session is not loaded. */
  async look({ session, ask: id, expiresAt }: AskLink) {
    const { store, limits } = this.#holdfast.authority
    const seq = Number(id.slice(1))
    const { row, events } = await store.read(session, seq - 1, 1)
    const opened = events.map(({ body }) => JSON.parse(body) as SessionEvent)[0]
    const isThere = row?.state !== 'erased' && opened?.type === 'ask.opened'
    if (!isThere || opened.ask !== id) throw askUnknown(session, id)
    const { asks } = await store.listAsks({ session, limit: limits.listMax })
    const open = asks.map(({ body }) => JSON.parse(body) as Ask).find((ask) => ask.id === id)
    const outcome = open === undefined ? await this.#outcome(session, id, seq) : null
    const shown = askShown(open ?? { ...opened, id })
    return { ask: shown, state: open === undefined ? 'settled' : 'open', outcome, expiresAt }
  }

  async #outcome(session: string, ask: string, seq: number): Promise<AskOutcome | null> {
    const { store, limits } = this.#holdfast.authority
    for (let after = seq; after < seq + LOOKED_THROUGH_MAX;) {
      const { events } = await store.read(session, after, limits.pageEvents)
      for (const { body } of events) {
        if (!body.startsWith('{"type":"ask.settled"')) continue
        const event = JSON.parse(body) as EventOf<'ask.settled'>
        if (event.ask === ask) return outcomeOf(event)
      }
      if (events.length === 0) return null
      after = events.at(-1)!.seq
    }
    return null
  }

  /** Its answer is recorded as the link's. How many more people have to allow it. */
  async answer({ id, session, ask }: AskLink, answer: unknown) {
    const access = { principal: '', groups: [], scopes: ['watch', 'answer'], session } as const
    return this.#holdfast.as(linkPrincipal(id), access).session(session).answer(ask, answer)
  }
}

/** One who has allowed it would allow it again by a link, as another person. */
function assertOnePerson({ people = 1 }: Ask): void {
  if (people <= 1) return
  throw new HoldfastError('forbidden', `${people} people have to allow this: it takes no link`)
}

/** What a person needs to decide. */
function askShown(ask: Ask) {
  const { id, kind, question, options, deadline, detail, accepts = [] } = ask
  const { answeredBy, people, approvals = [] } = ask
  return {
    ...{ id, kind, question, deadline },
    options: options?.map(({ id: option, label }) => ({ id: option, label })) ?? null,
    // The bearer of a link edits nothing.
    accepts: accepts.filter((form) => form !== 'input'),
    ...(detail === undefined ? {} : { detail }),
    ...(answeredBy === undefined ? {} : { answeredBy }),
    ...(people === undefined ? {} : { people, approvals: approvals.length }),
  }
}

const time = Type.Integer({ description: 'Milliseconds since 1970.' })
const { id, kind, question, options, deadline, detail, accepts, answeredBy, people } =
  schemas.Ask.properties
const LinkedAsk = Type.Object({
  ask: Type.Object({
    ...{ id, kind, question, options, deadline, detail, accepts, answeredBy, people },
    approvals: Type.Optional(Type.Integer({ description: 'How many people have allowed it.' })),
  }),
  state: oneOf(['open', 'settled']),
  outcome: orNull(Type.Object({ outcome: Type.String() }, { additionalProperties: true })),
  expiresAt: time,
})
const AskLinkRequest = Type.Object(
  optional({
    expiresInMs: Type.Integer({
      minimum: 1,
      maximum: LIFE_MS_MAX,
      default: LIFE_MS,
      description: 'how long it is good, in milliseconds',
    }),
  }),
  EXACT,
)
const readAskLinkBody = contract(AskLinkRequest)
const CreatedAskLink = Type.Object({
  token: Type.String({ description: 'Told only now.' }),
  url: Type.String({ description: 'The token is in its fragment, which is never sent.' }),
  expiresAt: time,
})
const AnsweredLink = Type.Object({
  outcome: oneOf(['answered', 'approved'], { description: '`approved`: more people have to.' }),
  missing: Type.Integer({ description: 'How many more.' }),
})

export function askLinkRoutes(links: AskLinks): readonly Route[] {
  const linkOf = ({ request }: Exchange): Promise<AskLink> =>
    links.read(bearerToken(request.headers))
  return routes({
    'POST /v1/sessions/:id/asks/:ask/link': {
      name: 'createAskLink',
      summary: 'Make a link that shows one ask to its bearer and takes the answer',
      operation: 'ask.answer',
      body: AskLinkRequest,
      answers: { 201: json('The link.', CreatedAskLink) },
      refusals: [404, 409, 410, 413, 415],
      session: sessionOfPath,
      handle: async (exchange) => {
        const [session = '', ask = ''] = exchange.params
        const { expiresInMs } = readAskLinkBody(await exchange.json())
        // A caller that may not see the ask gives no link away that shows it.
        await exchange.session.assertMay('ask.answer')
        const asks = await exchange.session.asks()
        const found = asks.find((open) => open.id === ask)
        if (found === undefined) throw askUnknown(session, ask)
        assertOnePerson(found)
        const { token, expiresAt } = await links.make(session, ask, expiresInMs)
        exchange.reply(201, { token, url: askLinkUrl(serverUrl(exchange), token), expiresAt })
      },
    },
    'GET /v1/ask': {
      name: 'getLinkedAsk',
      summary: 'The ask of a link, which is sent as Authorization: Bearer',
      operation: 'link.visit',
      answers: { 200: json('What is asked, and how it was settled.', LinkedAsk) },
      refusals: [401, 404],
      handle: async (exchange) => exchange.reply(200, await links.look(await linkOf(exchange))),
    },
    'POST /v1/ask': {
      name: 'answerLinkedAsk',
      summary: 'Answer the ask of a link; the first valid answer wins',
      operation: 'link.visit',
      body: AnswerRequest,
      answers: { 200: json('It is answered.', AnsweredLink) },
      refusals: [401, 404, 409, 410, 413, 415],
      session: async (exchange) => ({ id: (await linkOf(exchange)).session }),
      handle: async (exchange) => {
        const link = await linkOf(exchange)
        const { answer } = readAnswerBody(await exchange.json())
        const { missing } = await links.answer(link, answer)
        const facts = { session: link.session, link: link.id }
        const { holdfast, addressOf } = exchange.context
        const address = addressOf(exchange.request)
        holdfast.authority.diagnose('link_used', 'an ask was answered by a link', {
          ...facts,
          address,
        })
        exchange.reply(200, { outcome: missing === 0 ? 'answered' : 'approved', missing })
      },
    },
  })
}

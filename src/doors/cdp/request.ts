/** A client's command on its way: passed on, changed, answered here, or refused. */
import type { Command, Fault, Params } from './command.ts'
import type { Reply } from './link.ts'
import type { Session } from './session.ts'
import type { Tenant } from './tenant.ts'

/** One command, and the ways to deal with it. */
export class Request {
  readonly session: Session
  readonly command: Command

  constructor(session: Session, command: Command) {
    this.session = session
    this.command = command
  }

  /** The same command, with some of its parameters replaced. */
  with(changes: Params): Request {
    const params = { ...this.params, ...changes }
    return new Request(this.session, { ...this.command, params, raw: null, isVast: false })
  }

  get params(): Params {
    return this.command.params ?? {}
  }

  get tenant(): Tenant {
    return this.session.client.tenant
  }

  /** Its client has the browser for itself. */
  get isAlone(): boolean {
    return this.session.client.host.isOwn
  }

  /** Passes it on, changed or not; `read` sees a good result first and may change it. */
  pass(changes: Params | null = null, read: ((result: Params) => Params) | null = null): void {
    if (read === null) return this.#forward(changes, null)
    this.passThen(changes, ({ result, error }) =>
      error === undefined ? { result: read(result ?? {}) } : { error },
    )
  }

  /** Passes it on; the client is told what `read` makes of the reply. */
  passThen(changes: Params | null, read: (reply: Reply) => Reply): void {
    this.#forward(changes, (reply) => this.answer(read(reply)))
  }

  #forward(changes: Params | null, read: ((reply: Reply) => void) | null): void {
    const { session, command } = this
    // What was looked at is written anew: the browser gets what was judged, and nothing else.
    const params = changes === null ? command.params : { ...command.params, ...changes }
    session.forward({ ...command, params, raw: null }, read)
  }

  answer(reply: Reply): void {
    this.session.answer(this.command.id, reply)
  }

  refuse(error: Fault): void {
    this.answer({ error })
  }

  notFound(): void {
    this.refuse({ code: -32601, message: `'${this.command.method}' wasn't found` })
  }

  deny(why: string): void {
    this.refuse({ code: -32000, message: `${this.command.method} is not allowed here: ${why}` })
  }

  denyInternal(): void {
    this.deny("the page is the browser's own, for all of its clients; see --own-browsers")
  }

  /** For what all clients of a browser have in common. */
  denyCommon(what: string, wayOut = ''): void {
    this.deny(`${what} of a browser is common to all of its clients; ${wayOut}see --own-browsers`)
  }
}

export type Rule = (request: Request) => void

/** Schemes of the browser's own pages, through which one could reach everybody's. */
const INTERNAL_URL = /^(view-source:)*(chrome|devtools|about:(?!(blank|srcdoc)($|[?#])))/i

/** Browsers drop spaces and control characters before and inside a scheme: so do we. */
export function isInternalUrl(url: unknown): boolean {
  return typeof url === 'string' && INTERNAL_URL.test(url.replaceAll(/[\0-\x20]/g, ''))
}

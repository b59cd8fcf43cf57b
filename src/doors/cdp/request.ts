/** A client's command that a rule forwards, changes, answers or refuses. */
import type { CdpSession } from './client.ts'
import type { CdpCommand } from './command.ts'
import type { CdpError, CdpReply, Params } from './protocol.ts'
import type { BrowserTenant } from './tenant.ts'

export type CdpRule = (request: CdpRequest) => void

export class CdpRequest {
  readonly session: CdpSession
  readonly command: CdpCommand

  constructor(session: CdpSession, command: CdpCommand) {
    this.session = session
    this.command = command
  }

  get params(): Params {
    return this.command.params ?? {}
  }

  get tenant(): BrowserTenant {
    return this.session.client.tenant
  }

  /** Its client does not share the browser. */
  get isAlone(): boolean {
    return this.tenant.host.isOwn
  }

  /** Forwards it, with some params replaced; the client gets what `read` makes of the reply. */
  pass(changes: Params | null = null, read: ((reply: CdpReply) => CdpReply) | null = null): void {
    const { command, session } = this
    // Serialised again: the browser gets the values that the rule has read.
    const params = changes === null ? command.params : { ...command.params, ...changes }
    const answer = read === null ? null : (reply: CdpReply) => this.answer(read(reply))
    session.forward({ ...command, params, raw: null }, answer)
  }

  answer(reply: CdpReply): void {
    this.session.answer(this.command.id, reply)
  }

  refuse(error: CdpError): void {
    this.answer({ error })
  }

  notFound(): void {
    this.refuse({ code: -32601, message: `'${this.command.method}' wasn't found` })
  }

  /** Refuses what would affect other clients, and names the alternative. */
  deny(why: string, alternative = ''): void {
    const reason = `${why}; ${alternative}see --own-browsers`
    this.refuse({
      code: -32000,
      message: `${this.command.method} is not allowed here: ${reason}`,
    })
  }
}

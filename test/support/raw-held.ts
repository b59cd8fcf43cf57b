/** A client of `/held` without the comfort. */
import { RawCdp, type Message } from './raw-cdp.ts'

export type RawResume = {
  readonly session: string
  readonly attachment: string
  readonly token: string
  readonly received: number
}

export class RawHeld {
  readonly socket: RawCdp
  /** The first frame of the server; of a welcome with the session's id, and its resume token. */
  readonly welcome: Message

  constructor(socket: RawCdp, first: Message) {
    this.socket = socket
    const { session, resume } = first
    this.welcome =
      first['type'] === 'welcome' ? { ...first, session: session.id, token: resume } : first
  }

  static async open(url: string, resume?: RawResume): Promise<RawHeld> {
    const socket = await RawCdp.open(url)
    socket.say(`#${JSON.stringify({ type: 'hello', v: 2, ...backWith(resume) })}`)
    return new RawHeld(socket, await socket.frame())
  }

  /** The first answer of the server. */
  static async dial(url: string, resume: RawResume): Promise<Message> {
    return (await RawHeld.open(url, resume)).welcome
  }

  say(frame: object): void {
    this.socket.say(`#${JSON.stringify(frame)}`)
  }
}

function backWith(resume: RawResume | undefined): object {
  if (resume === undefined) return {}
  const { session, attachment, token, received } = resume
  return { session, received, take: true, auth: { resume: { attachment, token } } }
}

/** A client of `/held` without the comfort. */
import { RawCdp, type Message } from './raw-cdp.ts'

export class RawHeld {
  readonly socket: RawCdp
  readonly welcome: Message

  constructor(socket: RawCdp, welcome: Message) {
    this.socket = socket
    this.welcome = welcome
  }

  static async open(url: string, resume?: object): Promise<RawHeld> {
    const socket = await RawCdp.open(url)
    const hello = { type: 'hello', v: 1, ...(resume === undefined ? {} : { resume }) }
    socket.say(`#${JSON.stringify(hello)}`)
    const welcome = await socket.frame()
    return new RawHeld(socket, welcome)
  }

  /** The first answer of the server. */
  static async dial(url: string, resume: object): Promise<Message> {
    return (await RawHeld.open(url, resume)).welcome
  }
}

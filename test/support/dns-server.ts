/** A name server on loopback (RFC 1035, UDP) that answers A and AAAA questions as a test says. */
import { createSocket, type Socket } from 'node:dgram'
import { isIP } from 'node:net'

const TYPES: Readonly<Record<number, 4 | 6>> = { 1: 4, 28: 6 }

export class DnsServer {
  /** What was asked for, in order: names with the family of the addresses. */
  readonly asked: string[] = []
  readonly #socket: Socket

  private constructor(socket: Socket, addresses: (name: string) => readonly string[]) {
    this.#socket = socket
    socket.on('message', (question, { port, address }) => {
      const { name, type, end } = readQuestion(question)
      const family = TYPES[type]
      this.asked.push(`${name} ${family}`)
      const found = addresses(name).filter((one) => isIP(one) === family)
      socket.send(answer(question.subarray(0, end), type, found), port, address)
    })
  }

  static async start(addresses: (name: string) => readonly string[]): Promise<DnsServer> {
    const socket = createSocket('udp4')
    await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve))
    return new DnsServer(socket, addresses)
  }

  /** As `dns.setServers` takes it. */
  get address(): string {
    return `127.0.0.1:${this.#socket.address().port}`
  }

  close(): Promise<void> {
    return new Promise((resolve) => this.#socket.close(() => resolve()))
  }
}

function readQuestion(message: Buffer) {
  const labels: string[] = []
  let at = 12
  for (let length = message[at] ?? 0; length > 0; length = message[at] ?? 0) {
    labels.push(message.toString('latin1', at + 1, at + 1 + length))
    at += 1 + length
  }
  return { name: labels.join('.').toLowerCase(), type: message.readUInt16BE(at + 1), end: at + 5 }
}

/** The question again, and a record without a time to live for each address. */
function answer(question: Buffer, type: number, addresses: readonly string[]): Buffer {
  const head = Buffer.from(question.subarray(0, 12))
  head.writeUInt16BE(0x8180, 2)
  head.writeUInt16BE(addresses.length, 6)
  // Of further records in the question there are none in the answer.
  head.writeUInt32BE(0, 8)
  const records = addresses.map((address) => {
    const data = bytesOf(address)
    const record = Buffer.alloc(12)
    record.writeUInt16BE(0xc00c, 0)
    record.writeUInt16BE(type, 2)
    record.writeUInt16BE(1, 4)
    record.writeUInt16BE(data.length, 10)
    return Buffer.concat([record, data])
  })
  return Buffer.concat([head, question.subarray(12), ...records])
}

function bytesOf(address: string): Buffer {
  if (isIP(address) === 4) return Buffer.from(address.split('.').map(Number))
  const text = new URL(`http://[${address}]`).hostname.slice(1, -1)
  const [before = [], after = []] = text
    .split('::')
    .map((half) => (half === '' ? [] : half.split(':').map((group) => Number.parseInt(group, 16))))
  const groups = [...before, ...Array<number>(8 - before.length - after.length).fill(0), ...after]
  return Buffer.from(groups.flatMap((group) => [group >> 8, group & 255]))
}

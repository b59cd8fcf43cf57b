/** HTTP byte by byte, for requests that no client library would send. */
import { connect } from 'node:net'

export type RawAnswer = { readonly status: number; readonly text: string }

/** Sends these bytes, ends the sending side if asked to, and reads one answer. */
export function sendRaw(
  port: number,
  bytes: string,
  { isEnded = false }: { readonly isEnded?: boolean } = {},
): Promise<RawAnswer> {
  return new Promise((resolve) => {
    let text = ''
    const socket = connect(port, '127.0.0.1', () => {
      if (isEnded) socket.end(bytes)
      else socket.write(bytes)
    })
    socket.on('data', (data) => {
      text += data.toString()
      const [head = '', body] = text.split('\r\n\r\n')
      const length = Number(/^content-length: (\d+)$/im.exec(head)?.[1] ?? Infinity)
      if (body !== undefined && body.length >= length) socket.destroy()
    })
    // A reset is an end too: what was read until then is the answer.
    socket.on('error', () => undefined)
    socket.once('close', () => resolve({ status: Number(text.split(' ')[1] ?? 0), text }))
  })
}

/** A request's head, without the empty line that ends it. */
export function headOf(line: string, headers: readonly string[]): string {
  return [`${line} HTTP/1.1`, ...headers, 'Connection: close'].join('\r\n')
}

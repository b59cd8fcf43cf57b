/**
 * A page that a person uses by hand: a client of the Chrome DevTools Protocol at this page alone,
 * admitted by a ticket beside the other clients of the session. It is told how the page looks, and
 * tells the page what the person does.
 */
import { signal } from '@preact/signals'
import { api } from '../shared/server.ts'

export type Frame = {
  readonly address: string
  /** In CSS pixels of the page. */
  readonly width: number
  readonly height: number
}

export type PageDialog = { readonly type: string; readonly message: string }

type Params = Readonly<Record<string, unknown>>

type Message = {
  readonly id?: number
  readonly method?: string
  readonly params?: Params
  readonly result?: Params
  readonly error?: { readonly message: string }
}

const FRAMES = { format: 'jpeg', quality: 70, maxWidth: 1_600, maxHeight: 1_600 }

export class PageConnection {
  readonly state = signal<'connecting' | 'live' | 'over'>('connecting')
  /** Why it is over, or what the browser refused last. */
  readonly problem = signal('')
  readonly frame = signal<Frame | null>(null)
  /** A dialog of the page: it stands still until it is answered. */
  readonly dialog = signal<PageDialog | null>(null)
  #socket: WebSocket | null = null
  #isStopped = false
  #lastId = 0
  readonly #asked = new Map<number, (message: Message) => void>()

  constructor(session: string, page: string) {
    this.#open(session, page).catch((error: Error) => this.#end(error.message))
  }

  /** The result of a command; null: it was refused, and `problem` says why. */
  ask(method: string, params: Params = {}): Promise<Params | null> {
    if (this.#socket?.readyState !== WebSocket.OPEN) return Promise.resolve(null)
    this.#lastId += 1
    const id = this.#lastId
    this.#socket.send(JSON.stringify({ id, method, params }))
    return new Promise((resolve) => {
      this.#asked.set(id, ({ result, error }) => {
        if (error !== undefined) this.problem.value = error.message
        resolve(error === undefined ? (result ?? {}) : null)
      })
    })
  }

  /** For what is sent often, such as moves of the mouse. */
  tell(method: string, params: Params): void {
    void this.ask(method, params)
  }

  async goBack(): Promise<void> {
    const history = await this.ask('Page.getNavigationHistory')
    const { currentIndex = 0, entries = [] } = (history ?? {}) as {
      readonly currentIndex?: number
      readonly entries?: readonly { readonly id: number }[]
    }
    const before = entries[currentIndex - 1]
    if (before !== undefined) this.tell('Page.navigateToHistoryEntry', { entryId: before.id })
  }

  async goTo(address: string): Promise<void> {
    const url = /^[a-z][a-z\d+.-]*:/i.test(address) ? address : `https://${address}`
    this.problem.value = ''
    const result = await this.ask('Page.navigate', { url })
    const { errorText } = result ?? {}
    if (typeof errorText === 'string') this.problem.value = errorText
  }

  stop(): void {
    this.#isStopped = true
    this.#socket?.close()
  }

  async #open(session: string, page: string): Promise<void> {
    const path = `/v1/browsers/${encodeURIComponent(session)}/ticket`
    const { webSocketUrl } = await api.json<{ webSocketUrl: string }>(path, 'POST')
    if (this.#isStopped) return
    // By the address of this page, which may reach the server through a proxy.
    const { pathname, search } = new URL(webSocketUrl)
    const address = new URL(`${pathname}/devtools/page/${page}${search}`, api.url)
    address.protocol = address.protocol.replace('http', 'ws')
    const socket = new WebSocket(address)
    this.#socket = socket
    socket.addEventListener('open', () => this.#begin())
    socket.addEventListener('message', ({ data }) =>
      this.#receive(JSON.parse(String(data)) as Message),
    )
    socket.addEventListener('close', ({ code }) =>
      this.#end(endOf(code, this.state.peek() === 'live')),
    )
  }

  #begin(): void {
    this.state.value = 'live'
    this.tell('Page.enable', {})
    this.tell('Page.startScreencast', FRAMES)
  }

  #receive({ id, method, params = {}, ...reply }: Message): void {
    if (id !== undefined) {
      this.#asked.get(id)?.(reply)
      this.#asked.delete(id)
    } else if (method === 'Page.screencastFrame') this.#show(params)
    else if (method === 'Page.javascriptDialogOpening') {
      this.dialog.value = params as unknown as PageDialog
    } else if (method === 'Page.javascriptDialogClosed') this.dialog.value = null
  }

  #show({ data, metadata, sessionId }: Params): void {
    const { deviceWidth, deviceHeight } = metadata as Readonly<Record<string, number>>
    const size = { width: deviceWidth ?? 1, height: deviceHeight ?? 1 }
    this.frame.value = { address: `data:image/jpeg;base64,${String(data)}`, ...size }
    this.tell('Page.screencastFrameAck', { sessionId })
  }

  #end(reason: string): void {
    if (this.#isStopped || this.state.peek() === 'over') return
    for (const settle of this.#asked.values()) settle({ error: { message: reason } })
    this.#asked.clear()
    this.problem.value = reason
    this.state.value = 'over'
  }
}

function endOf(code: number, wasLive: boolean): string {
  if (code === 4401) return 'The token that admitted you is not good any more.'
  return wasLive ? 'The connection to the page has ended.' : 'The page cannot be reached.'
}

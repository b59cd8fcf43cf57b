/** The page of one session: its conversation, log and attachments, and its controls. */
import type { ClientState } from '../client/index.ts'
import type { SessionView } from '../wire/views.ts'
import type { Access } from './access.ts'
import type { Api } from './api.ts'
import { AttachmentsView } from './attachments.ts'
import { Badge } from './badge.ts'
import { Composer, type Busy } from './composer.ts'
import { ConversationView } from './conversation.ts'
import { button, element, fill, setText, tag } from './element.ts'
import { labelOf, remedyOf, sentenceOf, type Ended } from './ending.ts'
import { SessionConnection } from './session-connection.ts'
import { LogView } from './log.ts'
import { duration } from './moment.ts'
import { Questions } from './questions.ts'
import { QueueView } from './queue.ts'
import { shareDialog } from './share.ts'
import { Tabs } from './tabs.ts'

export type SessionPageOptions = {
  readonly id: string
  readonly link: string | null
  readonly access: Access
  readonly api: Api
  /** A session was created in place of this one. */
  readonly started: (session: SessionView) => void
}

/** A lost connection that is back sooner than this is not shown. */
const QUIET_MS = 2_000
/** The time for the second click on "Close session". */
const CONFIRM_MS = 4_000
/** How often remaining times and the queue are refreshed. */
const TICK_MS = 1_000

export class SessionPage {
  readonly element: HTMLElement
  readonly #options: SessionPageOptions
  readonly #conversation = new ConversationView()
  readonly #log = new LogView()
  readonly #attachments = new AttachmentsView()
  readonly #badge = new Badge()
  readonly #questions: Questions
  readonly #queue: QueueView
  readonly #composer: Composer
  readonly #tabs: Tabs
  readonly #title = element('h1', {})
  readonly #facts = element('div', { class: 'facts' })
  readonly #banner = element('div', { class: 'banner', role: 'alert', hidden: true })
  readonly #join: HTMLButtonElement
  readonly #close: HTMLButtonElement
  readonly #share: HTMLButtonElement
  readonly #connection: SessionConnection
  readonly #tick: number
  #quiet: number | undefined
  #lostAt: number | null = null
  #drawn = true

  constructor(options: SessionPageOptions) {
    this.#options = options
    this.#questions = new Questions((ask, answer) => this.#answer(ask, answer))
    this.#queue = new QueueView({
      read: async () => (await options.api.session(options.id)).queued,
      cancel: (turn) => options.api.cancel(options.id, turn),
      fail: (message) => this.#composer.fail(message),
    })
    this.#composer = new Composer({
      send: (text, busy) => this.#send(text, busy),
      cancel: () => this.#cancel(),
    })
    this.#join = button('Take part', () => this.#connection.takePart(), {
      class: 'plain',
      title: 'Until then this page only watches: agents do not wait for its answers',
    })
    this.#close = button('Close session', () => this.#confirmClose(), { class: 'plain danger' })
    this.#share = button('Share', () => shareDialog(options.api, options.id), { class: 'plain' })
    this.#tabs = new Tabs([
      { name: 'conversation', label: 'Conversation', panel: this.#conversation.element },
      { name: 'log', label: 'Log', panel: this.#log.element },
      { name: 'attachments', label: 'Attachments', panel: this.#attachments.element },
    ])
    this.element = this.#frame()
    this.#tabs.onSelect = (name) => {
      this.element.dataset['tab'] = name
    }
    setText(this.#title, options.id)
    this.#connection = this.#connect()
    this.#showAll()
    this.#tick = setInterval(() => this.#onTick(), TICK_MS)
  }

  /** Ends the connection to the session. */
  leave(): void {
    clearTimeout(this.#quiet)
    clearInterval(this.#tick)
    this.#badge.stop()
    this.#connection.leave()
  }

  /** Called when the page becomes visible again. */
  shown(): void {
    this.#tabs.scrollDown()
  }

  #frame(): HTMLElement {
    const header = element(
      'header',
      {},
      element('a', { class: 'back', href: '#/' }, '← Sessions'),
      this.#title,
      this.#badge.element,
      this.#facts,
      this.#tabs.element,
    )
    const parts = [this.#queue, this.#questions, this.#composer].map((part) => part.element)
    const foot = element('div', { class: 'foot' }, ...parts)
    return element(
      'section',
      { class: 'session', 'data-id': this.#options.id },
      header,
      this.#banner,
      ...this.#tabs.panels,
      foot,
    )
  }

  #connect(): SessionConnection {
    const { id, link, access, api } = this.#options
    return new SessionConnection({
      id,
      link,
      access,
      api,
      listener: {
        changed: (state) => queueMicrotask(() => this.#onState(state)),
        learned: (info) => this.#showFacts(info),
        restarted: () => this.#restart(),
        event: (event) => {
          this.#conversation.event(event)
          this.#log.event(event)
          this.#questions.event(event)
          this.#attachments.event(event)
          this.#drawSoon()
        },
        delta: (delta) => {
          this.#conversation.delta(delta)
          this.#drawSoon()
        },
      },
    })
  }

  #restart(): void {
    this.#conversation.clear()
    this.#log.clear()
    this.#questions.clear()
    this.#attachments.clear()
    this.#queue.clear()
  }

  #onTick(): void {
    this.#attachments.tick()
    if (this.element.offsetParent !== null && !document.hidden) this.#showQueue()
  }

  /** Renders once for all events that arrive together. */
  #drawSoon(): void {
    if (!this.#drawn) return
    this.#drawn = false
    setTimeout(() => {
      this.#drawn = true
      this.#attachments.render()
      this.#tabs.count('log', this.#log.count)
      this.#tabs.count('attachments', this.#attachments.count)
      this.#tabs.scrollDown()
      this.#showComposer()
      this.#showQueue()
    }, 0)
  }

  #onState(state: ClientState): void {
    clearTimeout(this.#quiet)
    this.#lostAt = state.name === 'reconnecting' ? (this.#lostAt ?? performance.now()) : null
    this.#showAll()
    if (this.#lostAt === null) return
    const quietMs = this.#lostAt + QUIET_MS - performance.now()
    this.#quiet = setTimeout(() => this.#showBanner(), quietMs)
  }

  #showAll(): void {
    const { state, info, isWatcher } = this.#connection
    const isOpen = state.name !== 'ended'
    this.#badge.show(state, info?.graceMs ?? 0, isWatcher)
    this.element.dataset['state'] = state.name
    this.#join.hidden = !isOpen || !isWatcher || !this.#connection.may('talk')
    this.#close.hidden = !isOpen || !this.#connection.may('admin')
    this.#share.hidden = this.#close.hidden
    this.#questions.show(isOpen)
    this.#showComposer()
    this.#showBanner()
  }

  #showComposer(): void {
    const isOpen = this.#connection.state.name !== 'ended' && this.#connection.may('talk')
    this.#composer.show({ isOpen, isRunning: this.#conversation.running !== null })
  }

  /** A guest with a link may only use the socket, which does not show the queue. */
  #showQueue(): void {
    if (this.#options.link !== null) return
    const isLive = this.#connection.state.name === 'live'
    const isBusy = isLive && this.#conversation.running !== null
    this.#queue.show({ isBusy, mayCancel: this.#connection.may('talk') })
  }

  #showFacts(info: SessionView): void {
    const { id, key, agent, reconnect, exclusive, graceMs, state } = info
    setText(this.#title, key ?? id)
    document.title = `${key ?? id} – Holdfast`
    fill(
      this.#facts,
      state === 'closed' ? tag('closed', { title: 'It accepts no more turns' }) : null,
      tag(agent, { title: 'Its agent' }),
      tag(reconnect, { title: 'Its reconnect policy' }),
      exclusive ? tag('exclusive', { title: 'One client drives, the others watch' }) : null,
      reconnect === 'none'
        ? null
        : tag(`${duration(graceMs)} grace`, { title: 'How long a page may be away' }),
      element('code', { class: 'muted', title: 'Its id' }, id),
      element('span', { class: 'actions' }, this.#join, this.#share, this.#close),
    )
  }

  #showBanner(): void {
    const { state } = this.#connection
    const isLong = this.#lostAt !== null && performance.now() - this.#lostAt >= QUIET_MS
    this.#banner.hidden = state.name !== 'ended' && !isLong
    if (this.#banner.hidden) return
    this.#banner.dataset['tone'] = state.name === 'ended' ? 'bad' : 'warn'
    if (state.name === 'ended') return this.#showEnded(state)
    const words = 'The connection is lost. What you send now is delivered when it is back.'
    fill(this.#banner, element('p', {}, words))
  }

  #showEnded(ended: Ended): void {
    const remedy = remedyOf(ended)
    const main = button(labelOf(remedy, ended.code), () => this.#remedy(), {
      class: 'primary',
      'data-remedy': remedy,
    })
    const watch = button('Watch only', () => this.#connection.watch(), { 'data-remedy': 'watch' })
    this.#banner.dataset['code'] = ended.code
    fill(
      this.#banner,
      element('p', {}, sentenceOf(ended)),
      element('div', { class: 'buttons' }, main, ended.code === 'in_use' ? watch : null),
    )
  }

  #remedy(): void {
    const { state } = this.#connection
    if (state.name !== 'ended') return
    switch (remedyOf(state)) {
      case 'start_new':
        return void this.#startNew()
      case 'take_over':
        return this.#connection.takeOver()
      case 'reload':
        return location.reload()
      case 'token': {
        const { access } = this.#options
        return void access.ask(access.token).then(() => this.#connection.watch())
      }
    }
  }

  /** Creates a session with the same options; the key is free again. */
  async #startNew(): Promise<void> {
    const { api, started } = this.#options
    const { info } = this.#connection
    try {
      if (info === null) return started(await api.create({ reconnect: 'reopen', exclusive: false }))
      const { key, agent, reconnect, exclusive, graceMs } = info
      const named = key === null ? {} : { key }
      started(await api.create({ ...named, agent, reconnect, exclusive, graceMs }))
    } catch (error) {
      this.#composer.fail((error as Error).message)
    }
  }

  async #answer(ask: string, answer: unknown): Promise<void> {
    await this.#connection.takePart()?.answer(ask, answer)
  }

  #send(text: string, busy: Busy): void {
    const turn = this.#connection.takePart()?.turn(text, { busy })
    if (turn === undefined) return
    const taken = this.#conversation.sending(text)
    turn.started.then(taken, (error: Error) => {
      taken()
      this.#composer.fail(`Not sent: ${error.message}`)
    })
    this.#tabs.scrollDown(true)
  }

  #cancel(): void {
    const turn = this.#conversation.running
    if (turn === null) return
    const session = this.#connection.takePart()
    session?.cancel(turn).catch((error: Error) => this.#composer.fail(error.message))
  }

  /** Closing affects all clients and cannot be undone, so it takes a second click. */
  #confirmClose(): void {
    if (this.#close.dataset['sure'] === undefined) {
      this.#close.dataset['sure'] = ''
      setText(this.#close, 'Close it for everybody?')
      setTimeout(() => {
        delete this.#close.dataset['sure']
        setText(this.#close, 'Close session')
      }, CONFIRM_MS)
      return
    }
    const { api, id } = this.#options
    api.close(id).catch((error: Error) => this.#composer.fail(error.message))
  }
}

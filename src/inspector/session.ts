/** One session: its conversation, its log, who is attached, and what can be done with it. */
import type { ClientState } from '../client/index.ts'
import type { SessionView } from '../wire/views.ts'
import type { Access } from './access.ts'
import type { Api } from './api.ts'
import { Attachments } from './attachments.ts'
import { Badge } from './badge.ts'
import { Composer, type Busy } from './composer.ts'
import { Conversation } from './conversation.ts'
import { element, fill, say } from './element.ts'
import { labelOf, remedyOf, sentenceOf, type Ended } from './ending.ts'
import { Holding } from './holding.ts'
import { Log } from './log.ts'
import { duration } from './moment.ts'
import { Questions } from './questions.ts'
import { Queue } from './queue.ts'
import { shareDialog } from './share.ts'
import { Tabs } from './tabs.ts'

export type SessionPageOptions = {
  readonly id: string
  readonly link: string | null
  readonly access: Access
  readonly api: Api
  /** A session was made in place of this one. */
  readonly started: (session: SessionView) => void
}

/** A loss that is over sooner than this is nobody's business. */
const QUIET_MS = 2_000
const SURE_MS = 4_000
/** How often what shows the passing of time is drawn again. */
const TICK_MS = 1_000

export class SessionPage {
  readonly element: HTMLElement
  readonly #options: SessionPageOptions
  readonly #conversation = new Conversation()
  readonly #log = new Log()
  readonly #attachments = new Attachments()
  readonly #badge = new Badge()
  readonly #questions: Questions
  readonly #queue: Queue
  readonly #composer: Composer
  readonly #tabs: Tabs
  readonly #title = element('h1', {})
  readonly #facts = element('div', { class: 'facts' })
  readonly #banner = element('div', { class: 'banner', role: 'alert', hidden: true })
  readonly #join: HTMLButtonElement
  readonly #close: HTMLButtonElement
  readonly #share: HTMLButtonElement
  readonly #holding: Holding
  readonly #tick: number
  #quiet: number | undefined
  #lostAt: number | null = null
  #drawn = true

  constructor(options: SessionPageOptions) {
    this.#options = options
    this.#questions = new Questions((ask, answer) => this.#answer(ask, answer))
    this.#queue = new Queue({
      read: async () => (await options.api.session(options.id)).queued,
      cancel: (turn) => options.api.cancel(options.id, turn),
      fail: (message) => this.#composer.fail(message),
    })
    this.#composer = new Composer({
      send: (text, busy) => this.#send(text, busy),
      cancel: () => this.#cancel(),
    })
    this.#join = element('button', { type: 'button', class: 'plain' }, 'Take part')
    this.#join.title = 'Until then this page only looks on: agents do not wait for its answers'
    this.#join.addEventListener('click', () => this.#holding.takePart())
    this.#close = element('button', { type: 'button', class: 'plain danger' }, 'Close session')
    this.#close.addEventListener('click', () => this.#closeOnClick())
    this.#share = element('button', { type: 'button', class: 'plain' }, 'Share')
    this.#share.addEventListener('click', () => shareDialog(options.api, options.id))
    this.#tabs = new Tabs([
      { name: 'conversation', label: 'Conversation', panel: this.#conversation.element },
      { name: 'log', label: 'Log', panel: this.#log.element },
      { name: 'attachments', label: 'Attachments', panel: this.#attachments.element },
    ])
    this.element = this.#frame()
    this.#tabs.onSelect = (name) => {
      this.element.dataset['tab'] = name
    }
    say(this.#title, options.id)
    this.#holding = this.#hold()
    this.#showAll()
    this.#tick = setInterval(() => this.#onTick(), TICK_MS) as unknown as number
  }

  /** Lets go of the session. */
  leave(): void {
    clearTimeout(this.#quiet)
    clearInterval(this.#tick)
    this.#badge.stop()
    this.#holding.leave()
  }

  /** It is looked at again. */
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

  #hold(): Holding {
    const { id, link, access, api } = this.#options
    return new Holding({
      id,
      link,
      access,
      api,
      owner: {
        changed: (state) => queueMicrotask(() => this.#holdingOnChange(state)),
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

  /** Many events come together: what depends on all of them is drawn once. */
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

  #holdingOnChange(state: ClientState): void {
    clearTimeout(this.#quiet)
    this.#lostAt = state.name === 'reconnecting' ? (this.#lostAt ?? performance.now()) : null
    this.#showAll()
    if (this.#lostAt === null) return
    const quietMs = this.#lostAt + QUIET_MS - performance.now()
    this.#quiet = setTimeout(() => this.#showBanner(), quietMs) as unknown as number
  }

  #showAll(): void {
    const { state, info, isWatcher } = this.#holding
    const isOpen = state.name !== 'ended'
    this.#badge.show(state, info?.graceMs ?? 0, isWatcher)
    this.element.dataset['state'] = state.name
    this.#join.hidden = !isOpen || !isWatcher || !this.#holding.may('talk')
    this.#close.hidden = !isOpen || !this.#holding.may('admin')
    this.#share.hidden = this.#close.hidden
    this.#questions.show(isOpen)
    this.#showComposer()
    this.#showBanner()
  }

  #showComposer(): void {
    const isOpen = this.#holding.state.name !== 'ended' && this.#holding.may('talk')
    this.#composer.show({ isOpen, isRunning: this.#conversation.running !== null })
  }

  /** A guest by a link has no other way to the server than its socket, which does not tell. */
  #showQueue(): void {
    if (this.#options.link !== null) return
    const isLive = this.#holding.state.name === 'live'
    const isBusy = isLive && this.#conversation.running !== null
    this.#queue.show({ isBusy, mayCancel: this.#holding.may('talk') })
  }

  #showFacts(info: SessionView): void {
    const { id, key, agent, reconnect, exclusive, graceMs, state } = info
    say(this.#title, key ?? id)
    document.title = `${key ?? id} – Holdfast`
    const tag = (text: string, title: string): HTMLElement =>
      element('span', { class: 'tag', title }, text)
    fill(
      this.#facts,
      state === 'closed' ? tag('closed', 'Nothing more will happen in it') : null,
      tag(agent, 'Who carries out its turns'),
      tag(reconnect, 'What a lost connection means'),
      exclusive ? tag('exclusive', 'One drives, the others watch') : null,
      reconnect === 'none'
        ? null
        : tag(`${duration(graceMs)} grace`, 'How long a page may be away'),
      element('code', { class: 'muted', title: 'Its id' }, id),
      element('span', { class: 'actions' }, this.#join, this.#share, this.#close),
    )
  }

  #showBanner(): void {
    const { state } = this.#holding
    const isLong = this.#lostAt !== null && performance.now() - this.#lostAt >= QUIET_MS
    this.#banner.hidden = state.name !== 'ended' && !isLong
    if (this.#banner.hidden) return
    this.#banner.dataset['tone'] = state.name === 'ended' ? 'bad' : 'warn'
    if (state.name === 'ended') return this.#showEnded(state)
    const words = 'The connection is lost. What you send now leaves when it is back.'
    fill(this.#banner, element('p', {}, words))
  }

  #showEnded(ended: Ended): void {
    const remedy = remedyOf(ended)
    const main = element(
      'button',
      { class: 'primary', type: 'button', 'data-remedy': remedy, onclick: () => this.#remedy() },
      labelOf(remedy, ended.code),
    )
    const watch = element(
      'button',
      { type: 'button', 'data-remedy': 'watch', onclick: () => this.#holding.watch() },
      'Watch only',
    )
    this.#banner.dataset['code'] = ended.code
    fill(
      this.#banner,
      element('p', {}, sentenceOf(ended)),
      element('div', { class: 'buttons' }, main, ended.code === 'in_use' ? watch : null),
    )
  }

  #remedy(): void {
    const { state } = this.#holding
    if (state.name !== 'ended') return
    switch (remedyOf(state)) {
      case 'start_new':
        return void this.#startNew()
      case 'take_over':
        return this.#holding.takeOver()
      case 'reload':
        return location.reload()
      case 'token': {
        const { access } = this.#options
        return void access.ask(access.token).then(() => this.#holding.watch())
      }
    }
  }

  /** Another one of the same kind; the key is free again. */
  async #startNew(): Promise<void> {
    const { api, started } = this.#options
    const { info } = this.#holding
    try {
      if (info === null) return started(await api.create({ reconnect: 'reopen', exclusive: false }))
      const { key, agent, reconnect, exclusive, graceMs } = info
      const named = key === null ? {} : { key }
      started(await api.create({ ...named, agent, reconnect, exclusive, graceMs }))
    } catch (error) {
      this.#composer.fail(error instanceof Error ? error.message : String(error))
    }
  }

  async #answer(ask: string, answer: unknown): Promise<void> {
    await this.#holding.takePart()?.answer(ask, answer)
  }

  #send(text: string, busy: Busy): void {
    const turn = this.#holding.takePart()?.turn(text, { busy })
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
    const session = this.#holding.takePart()
    session?.cancel(turn).catch((error: Error) => this.#composer.fail(error.message))
  }

  /** Closing is for everybody and for good, so it takes a second click. */
  #closeOnClick(): void {
    if (this.#close.dataset['sure'] === undefined) {
      this.#close.dataset['sure'] = ''
      say(this.#close, 'Close it for everybody?')
      setTimeout(() => {
        delete this.#close.dataset['sure']
        say(this.#close, 'Close session')
      }, SURE_MS)
      return
    }
    const { api, id } = this.#options
    api.close(id).catch((error: Error) => this.#composer.fail(error.message))
  }
}

/** The page of one session: its conversation, log and attachments, and its controls. */
import type { SessionView } from '../wire/views.ts'
import { attachmentsView } from './attachments.ts'
import { connectionBadge } from './badge.ts'
import { composer, type Busy } from './composer.ts'
import { ConversationView } from './conversation.ts'
import { button, buttons, element, fill, setText, tag } from './element.ts'
import { labelOf, remedyOf, sentenceOf, type Ended, type Remedy } from './ending.ts'
import { logView } from './log.ts'
import { duration } from './moment.ts'
import { questionsView } from './questions.ts'
import { queueView } from './queue.ts'
import { SessionConnection, type SessionAccess } from './session-connection.ts'
import { shareDialog } from './forms.ts'
import { tabbedPanels } from './tabs.ts'

type SessionPageOptions = SessionAccess & {
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
  readonly #log = logView()
  readonly #attachments = attachmentsView()
  readonly #questions = questionsView(async (ask, answer) => {
    await this.#connection.takePart()?.answer(ask, answer)
  })
  readonly #composer = composer(
    (text, busy) => this.#send(text, busy),
    () => this.#cancel(),
  )
  readonly #queue: ReturnType<typeof queueView>
  readonly #badge = connectionBadge()
  readonly #tabs = tabbedPanels(
    [
      { name: 'conversation', label: 'Conversation', content: this.#conversation.element },
      { name: 'log', label: 'Log', content: this.#log.element },
      { name: 'attachments', label: 'Attachments', content: this.#attachments.element },
    ],
    (name) => {
      this.element.dataset['tab'] = name
    },
  )
  readonly #title = element('h1')
  readonly #facts = element('div.facts')
  readonly #banner = element('div.banner', { role: 'alert', hidden: true })
  readonly #join = button('Take part', () => this.#connection.takePart(), {
    class: 'plain',
    title: 'Until then this page only watches: agents do not wait for its answers',
  })
  readonly #share: HTMLButtonElement
  readonly #close = button('Close session', () => this.#confirmClose(), { class: 'plain danger' })
  readonly #connection: SessionConnection
  readonly #tick = setInterval(() => this.#onTick(), TICK_MS)
  #quiet: number | undefined
  #lostAt: number | null = null
  #drawn = true

  constructor(options: SessionPageOptions) {
    const { api, id } = options
    this.#options = options
    this.#queue = queueView(api, id, this.#composer.fail)
    this.#share = button('Share', () => shareDialog(api, id), { class: 'plain' })
    this.element = this.#frame()
    setText(this.#title, id)
    this.#connection = this.#connect()
    this.#showAll()
  }

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
    const back = element('a.back', { href: '#/' }, '← Sessions')
    const parts = [this.#badge.element, this.#facts, this.#tabs.element]
    const controls = [this.#queue, this.#questions, this.#composer].map((part) => part.element)
    return element(
      'section.session',
      { 'data-id': this.#options.id },
      element('header', back, this.#title, ...parts),
      this.#banner,
      ...this.#tabs.panels,
      element('div.foot', ...controls),
    )
  }

  #connect(): SessionConnection {
    const views = [this.#conversation, this.#log, this.#questions, this.#attachments]
    return new SessionConnection(this.#options, {
      changed: () => queueMicrotask(() => this.#onState()),
      learned: (info) => this.#showFacts(info),
      restarted: () => {
        for (const view of [...views, this.#queue]) view.clear()
      },
      event: (event) => {
        for (const view of views) view.event(event)
        this.#drawSoon()
      },
      delta: (delta) => {
        this.#conversation.delta(delta)
        this.#drawSoon()
      },
    })
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
      this.#tabs.count('log', this.#log.count())
      this.#tabs.count('attachments', this.#attachments.count())
      this.#tabs.scrollDown()
      this.#showComposer()
      this.#showQueue()
    }, 0)
  }

  #onState(): void {
    clearTimeout(this.#quiet)
    const isLost = this.#connection.state.name === 'reconnecting'
    this.#lostAt = isLost ? (this.#lostAt ?? performance.now()) : null
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
    this.#composer.show(isOpen, this.#conversation.running !== null)
  }

  /** A guest with a link may only use the socket, which does not show the queue. */
  #showQueue(): void {
    if (this.#options.link !== null) return
    const isLive = this.#connection.state.name === 'live'
    const isBusy = isLive && this.#conversation.running !== null
    this.#queue.show(isBusy, this.#connection.may('talk'))
  }

  #showFacts(info: SessionView): void {
    const { id, key, agent, reconnect, exclusive, graceMs, state } = info
    setText(this.#title, key ?? id)
    document.title = `${key ?? id} – Holdfast`
    const grace = tag(`${duration(graceMs)} grace`, { title: 'How long a page may be away' })
    fill(
      this.#facts,
      state === 'closed' ? tag('closed', { title: 'It accepts no more turns' }) : null,
      tag(agent, { title: 'Its agent' }),
      tag(reconnect, { title: 'Its reconnect policy' }),
      exclusive ? tag('exclusive', { title: 'One client drives, the others watch' }) : null,
      reconnect === 'none' ? null : grace,
      element('code.muted', { title: 'Its id' }, id),
      element('span.actions', this.#join, this.#share, this.#close),
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
    fill(this.#banner, element('p', words))
  }

  #showEnded(ended: Ended): void {
    const { code } = ended
    const remedy = remedyOf(ended)
    const main = button(labelOf(remedy, code), () => this.#remedies[remedy](), {
      class: 'primary',
      'data-remedy': remedy,
    })
    const watch = button('Watch only', () => this.#connection.watch(), { 'data-remedy': 'watch' })
    this.#banner.dataset['code'] = code
    const choices = buttons(main, code === 'in_use' ? watch : null)
    fill(this.#banner, element('p', sentenceOf(ended)), choices)
  }

  readonly #remedies: Readonly<Record<Remedy, () => void>> = {
    start_new: () => void this.#startNew(),
    take_over: () => this.#connection.takeOver(),
    reload: () => location.reload(),
    token: () => {
      const { api } = this.#options
      void api.renewToken(api.token).then(() => this.#connection.watch())
    },
  }

  /** Creates a session with the same options; the key is free again. */
  async #startNew(): Promise<void> {
    const { api, started } = this.#options
    const { info } = this.#connection
    try {
      if (info === null) return started(await api.create({ reconnect: 'reopen', exclusive: false }))
      const { key, agent, reconnect, exclusive, graceMs } = info
      const options = { key: key ?? undefined, agent, reconnect, exclusive, graceMs }
      started(await api.create(options))
    } catch (error) {
      this.#composer.fail((error as Error).message)
    }
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

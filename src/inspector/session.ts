/** The page of one session: its conversation, log and attachments, and its controls. */
import type { SessionView } from '../wire/views.ts'
import { attachmentsView } from './attachments.ts'
import { connectionBadge } from './badge.ts'
import { composer, type Busy } from './composer.ts'
import { conversationView } from './conversation.ts'
import { button, buttons, element, fill, setText, tag } from './element.ts'
import { labelOf, remedyOf, sentenceOf, type Ended } from './ending.ts'
import { shareDialog } from './forms.ts'
import { logView } from './log.ts'
import { duration } from './moment.ts'
import { blobLoader } from './parts.ts'
import { questionsView } from './questions.ts'
import { queueView } from './queue.ts'
import { SessionConnection, type SessionAccess } from './session-connection.ts'
import { tabbedPanels } from './tabs.ts'

/** A lost connection that is back sooner than this is not shown. */
const QUIET_MS = 2_000
/** The time for the second click on "Close session". */
const CONFIRM_MS = 4_000
const TICK_MS = 1_000

/** `started` is called when a session was created in place of this one. */
export function sessionPage(access: SessionAccess, started: (session: SessionView) => void) {
  const { id, link, api } = access
  const conversation = conversationView(blobLoader(api, id, link))
  const log = logView()
  const attachments = attachmentsView()
  const questions = questionsView(
    async (ask, answer) => {
      await connection.takePart()?.answer(ask, answer)
    },
    () => connection.may('edit'),
  )
  const { fail, ...form } = composer(send, cancel)
  const queue = queueView(api, id, fail)
  const badge = connectionBadge()
  const tabs = tabbedPanels(
    [
      { name: 'conversation', label: 'Conversation', content: conversation.element },
      { name: 'log', label: 'Log', content: log.element },
      { name: 'attachments', label: 'Attachments', content: attachments.element },
    ],
    (name) => {
      page.dataset['tab'] = name
    },
  )
  const title = element('h1', id)
  const facts = element('div.facts')
  const banner = element('div.banner', { role: 'alert', hidden: true })
  const join = button('Take part', () => connection.takePart(), {
    class: 'plain',
    title: 'Until then this page only watches: agents do not wait for its answers',
  })
  const share = button('Share', () => shareDialog(api, id), { class: 'plain' })
  const close = button('Close session', confirmClose, { class: 'plain danger' })
  const back = element('a.back', { href: '#/' }, '← Sessions')
  const page = element(
    'section.session',
    { 'data-id': id },
    element('header', back, title, badge.element, facts, tabs.element),
    banner,
    ...tabs.panels,
    element('div.foot', queue.element, questions.element, form.element),
  )
  let quiet: number | undefined
  let lostAt: number | null = null
  let isDrawn = true
  const views = [conversation, log, questions, attachments]
  const connection = new SessionConnection(access, {
    changed: () => queueMicrotask(onState),
    learned: showFacts,
    restarted: () => {
      for (const view of [...views, queue]) view.clear()
    },
    event: (event) => {
      for (const view of views) view.event(event)
      drawSoon()
    },
    delta: (delta) => {
      conversation.delta(delta)
      drawSoon()
    },
  })
  const ticker = setInterval(() => {
    attachments.tick()
    questions.tick()
    if (page.offsetParent !== null && !document.hidden) showQueue()
  }, TICK_MS)
  showAll()

  /** Renders once for all events that arrive together. */
  function drawSoon(): void {
    if (!isDrawn) return
    isDrawn = false
    setTimeout(() => {
      isDrawn = true
      attachments.render()
      tabs.count('log', log.count())
      tabs.count('attachments', attachments.count())
      tabs.scrollDown()
      showComposer()
      showQueue()
    }, 0)
  }

  function onState(): void {
    clearTimeout(quiet)
    const isLost = connection.state.name === 'reconnecting'
    lostAt = isLost ? (lostAt ?? performance.now()) : null
    showAll()
    if (lostAt !== null) quiet = setTimeout(showBanner, lostAt + QUIET_MS - performance.now())
  }

  function showAll(): void {
    const { state, info, isWatcher } = connection
    const isOpen = state.name !== 'ended'
    badge.show(state, info?.graceMs ?? 0, isWatcher)
    page.dataset['state'] = state.name
    join.hidden = !isOpen || !isWatcher || !connection.may('talk')
    close.hidden = !isOpen || !connection.may('manage')
    share.hidden = close.hidden
    questions.show(isOpen)
    showComposer()
    showBanner()
  }

  function showComposer(): void {
    const isOpen = connection.state.name !== 'ended' && connection.may('talk')
    form.show(isOpen, conversation.running() !== null)
  }

  /** A guest with a link may only use the socket, which does not show the queue. */
  function showQueue(): void {
    if (link !== null) return
    const isBusy = connection.state.name === 'live' && conversation.running() !== null
    queue.show(isBusy, connection.may('talk'))
  }

  function showFacts(info: SessionView): void {
    const { key, agent, reconnect, exclusive, graceMs, state } = info
    setText(title, key ?? id)
    document.title = `${key ?? id} – Holdfast`
    const grace = tag(`${duration(graceMs)} grace`, { title: 'How long a page may be away' })
    fill(
      facts,
      state === 'closed' ? tag('closed', { title: 'It accepts no more turns' }) : null,
      tag(agent, { title: 'Its agent' }),
      tag(reconnect, { title: 'Its reconnect policy' }),
      exclusive ? tag('exclusive', { title: 'One client drives, the others watch' }) : null,
      reconnect === 'none' ? null : grace,
      element('code.muted', { title: 'Its id' }, id),
      element('span.actions', join, share, close),
    )
  }

  function showBanner(): void {
    const { state } = connection
    const isLong = lostAt !== null && performance.now() - lostAt >= QUIET_MS
    banner.hidden = state.name !== 'ended' && !isLong
    if (banner.hidden) return
    banner.dataset['tone'] = state.name === 'ended' ? 'bad' : 'warn'
    if (state.name === 'ended') return showEnded(state)
    const words = 'The connection is lost. What you send now is delivered when it is back.'
    fill(banner, element('p', words))
  }

  function showEnded(ended: Ended): void {
    const { code } = ended
    const remedies = {
      start_new: () => void startNew(),
      take_over: () => connection.takeOver(),
      reload: () => location.reload(),
      token: () => void api.renewToken(api.token).then(() => connection.watch()),
    }
    const remedy = remedyOf(ended)
    const attributes = { class: 'primary', 'data-remedy': remedy }
    const main = button(labelOf(remedy, code), remedies[remedy], attributes)
    const watch = button('Watch only', () => connection.watch(), { 'data-remedy': 'watch' })
    banner.dataset['code'] = code
    const choices = buttons(main, code === 'in_use' ? watch : null)
    fill(banner, element('p', sentenceOf(ended)), choices)
  }

  /** Creates a session with the same options; the key is free again. */
  async function startNew(): Promise<void> {
    const info: Partial<SessionView> = connection.info ?? {}
    const { key, agent, reconnect = 'reopen', exclusive = false, graceMs } = info
    try {
      started(await api.create({ key: key ?? undefined, agent, reconnect, exclusive, graceMs }))
    } catch (error) {
      fail((error as Error).message)
    }
  }

  function send(text: string, busy: Busy): void {
    const turn = connection.takePart()?.turn(text, { busy })
    if (turn === undefined) return
    const taken = conversation.sending(text)
    turn.started.then(taken, (error: Error) => {
      taken()
      fail(`Not sent: ${error.message}`)
    })
    tabs.scrollDown(true)
  }

  function cancel(): void {
    const turn = conversation.running()
    if (turn === null) return
    const session = connection.takePart()
    session?.cancel(turn).catch((error: Error) => fail(error.message))
  }

  /** Closing affects all clients and cannot be undone, so it takes a second click. */
  function confirmClose(): void {
    if (close.dataset['sure'] !== undefined) {
      return void api.close(id).catch((error: Error) => fail(error.message))
    }
    close.dataset['sure'] = ''
    setText(close, 'Close it for everybody?')
    setTimeout(() => {
      delete close.dataset['sure']
      setText(close, 'Close session')
    }, CONFIRM_MS)
  }

  return {
    element: page,
    shown: () => tabs.scrollDown(),
    leave(): void {
      clearTimeout(quiet)
      clearInterval(ticker)
      badge.stop()
      connection.leave()
    },
  }
}

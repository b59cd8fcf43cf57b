/**
 * Asks reach a person who looks elsewhere: their number is in the title of each tab, and if the
 * person wants it, the system shows a notification. One tab of a browser, which has a lock, keeps
 * the stream of asks open while it is hidden, and tells the others how many there are.
 */
import { effect, signal } from '@preact/signals'
import { holdAsks, inbox, isInboxRead } from '../shared/feeds.ts'
import { sessionHref } from '../shared/router.ts'
import { api } from '../shared/server.ts'
import { shownName, shownText } from '../shared/shown-text.ts'
import { pageTitle } from '../shared/title.ts'
import { preference } from './preferences.ts'

export const isNotifying = preference('notify', false)

/** Pages that come without TLS from another host have none. */
export const canNotify = 'Notification' in window && isSecureContext

/** How many the tab with the lock has counted; null: it has not said. */
const counted = signal<number | null>(null)
const isHidden = signal(document.hidden)
const isHolder = signal(false)

/** The returned function ends it. */
export function followAttention(): () => void {
  const abort = new AbortController()
  const onVisible = (): void => void (isHidden.value = document.hidden)
  document.addEventListener('visibilitychange', onVisible, abort)
  const stops = [effect(showTitle), effect(notify), effect(() => beHolder(api.token, abort.signal))]
  return () => {
    abort.abort()
    for (const stop of stops) stop()
  }
}

function showTitle(): void {
  const isTold = isHidden.value && !isHolder.value && counted.value !== null
  const asks = isTold ? (counted.value ?? 0) : inbox.value.length
  document.title = `${asks === 0 ? '' : `(${asks}) `}${pageTitle.value} – Holdfast`
}

/** Tabs with the same token see the same asks. */
function beHolder(token: string | null, ended: AbortSignal): () => void {
  const stopped = new AbortController()
  const signal = AbortSignal.any([ended, stopped.signal])
  if (navigator.locks !== undefined) {
    void nameFor(token).then((name) => takeTurn(name, signal).catch(onlyIfAborted))
  }
  return () => stopped.abort()
}

async function nameFor(token: string | null): Promise<string> {
  const bytes = new TextEncoder().encode(`${api.url} ${token ?? ''}`)
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))
  return `holdfast-asks-${Array.from(digest, (byte) => byte.toString(16)).join('')}`
}

/** Listens to the holder, until this tab is the one. */
async function takeTurn(name: string, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  const channel = new BroadcastChannel(name)
  signal.addEventListener('abort', () => channel.close())
  channel.addEventListener('message', ({ data }) => (counted.value = Number(data)))
  await navigator.locks.request(name, { signal }, async () => {
    isHolder.value = true
    const release = holdAsks()
    // A channel has no other origin to send to.
    // oxlint-disable-next-line unicorn/require-post-message-target-origin
    const stop = effect(() => channel.postMessage(inbox.value.length))
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    stop()
    release()
    isHolder.value = false
  })
}

function onlyIfAborted(error: Error): void {
  if (error.name !== 'AbortError') throw error
}

let shown: ReadonlySet<string> | null = null

/** Of those that come after the first reading: the others are seen in the title. */
function notify(): void {
  if (!isInboxRead.value) return
  const asks = inbox.value.map((ask) => [`${ask.session.id} ${ask.id}`, ask] as const)
  const before = shown
  shown = new Set(asks.map(([name]) => name))
  if (before === null || !isHolder.value || !isNotifying.value || document.hasFocus()) return
  for (const [tag, { session, question }] of asks) {
    if (before.has(tag)) continue
    const name = shownName(session.key ?? session.id)
    const notification = new Notification(`${name} asks`, { body: shownText(question), tag })
    notification.addEventListener('click', () => {
      window.focus()
      location.hash = sessionHref(session.id)
      notification.close()
    })
  }
}

/** Asks the browser for the right to notify first; it may be refused. */
export async function setNotifying(isWanted: boolean): Promise<void> {
  isNotifying.value = isWanted && (await Notification.requestPermission()) === 'granted'
}

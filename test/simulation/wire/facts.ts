/** What happened in a world with sockets, in the form in which it is judged. */
import type { ServerFrame, Welcome } from '../../../src/wire/frames.ts'
import { gather, grouped, type Facts } from '../facts.ts'
import type { Happening, History, Recorded } from '../history.ts'
import type { WishOutcome } from './happenings.ts'

/** A frame, when it was sent or taken. */
export type Said<Frame> = { readonly stamp: number; readonly at: number; readonly frame: Frame }

/** Any frame of a client, whether or not it was one. */
export type Heard = Readonly<Record<string, unknown>> & { readonly type: string }

/** One socket as its server saw it. */
export type LinkFacts = {
  readonly link: number
  readonly by: string
  readonly node: string
  readonly openedAt: number
  readonly heard: readonly Said<Heard>[]
  readonly said: readonly Said<ServerFrame>[]
  readonly hello: Said<Heard> | null
  readonly welcome: Said<Welcome> | null
  /** When the server was done with it, and how. */
  readonly endedAt: number
  readonly how: string
  /** When something first went wrong with it. */
  readonly mishapAt: number
}

export type PageFacts = {
  readonly begun: Recorded<Happening & { type: 'page.begun' }>
  readonly states: readonly Recorded<Happening & { type: 'page.state' }>[]
  readonly told: readonly Recorded<Happening & { type: 'page.told' }>[]
  readonly diedAt: number
  readonly leftAt: number
  readonly links: readonly LinkFacts[]
  /** Somebody else may have had its token. */
  readonly isCopied: boolean
}

export type WishFacts = {
  readonly begun: Recorded<Happening & { type: 'wish.begun' }>
  readonly ended: Recorded<Happening & { type: 'wish.ended' }> | null
  readonly outcome: WishOutcome | null
}

export type WireFacts = Facts & {
  readonly links: readonly LinkFacts[]
  readonly pages: readonly PageFacts[]
  readonly wishes: readonly WishFacts[]
}

export function gatherWire(history: History): WireFacts {
  const facts = gather(history)
  const links = gatherLinks(history)
  return { ...facts, links, pages: gatherPages(history, links), wishes: gatherWishes(history) }
}

function gatherLinks(history: History): LinkFacts[] {
  const heard = grouped(history.of('wire.heard'), ({ link }) => link)
  const said = grouped(history.of('wire.said'), ({ link }) => link)
  const ended = grouped(history.of('wire.ended'), ({ link }) => link)
  const mishaps = grouped(history.of('wire.mishap'), ({ link }) => link)
  const crashes = new Map(history.of('node.crashed').map(({ node, stamp }) => [node, stamp]))
  return history.of('wire.opened').map(({ link, by, node, stamp }) => {
    const up = (heard.get(link) ?? []).flatMap(framesOf<Heard>)
    const down = (said.get(link) ?? []).flatMap(framesOf<ServerFrame>)
    const end = ended.get(link)?.[0]
    const isWelcome = (sent: Said<ServerFrame>): sent is Said<Welcome> =>
      sent.frame.type === 'welcome'
    return {
      ...{ link, by, node, openedAt: stamp, heard: up, said: down },
      hello: up.find(({ frame }) => frame.type === 'hello') ?? null,
      welcome: down.find(isWelcome) ?? null,
      endedAt: Math.min(end?.stamp ?? Infinity, crashes.get(node) ?? Infinity),
      how: end?.how ?? '',
      mishapAt: mishaps.get(link)?.[0]?.stamp ?? Infinity,
    }
  })
}

function framesOf<Frame>({
  stamp,
  at,
  text,
}: {
  readonly stamp: number
  readonly at: number
  readonly text: string
}): Said<Frame>[] {
  const message = JSON.parse(text) as Frame | Frame[]
  const frames = Array.isArray(message) ? message : [message]
  return frames.map((frame) => ({ stamp, at, frame }))
}

function gatherPages(history: History, links: readonly LinkFacts[]): PageFacts[] {
  const states = grouped(history.of('page.state'), ({ page }) => page)
  const told = grouped(history.of('page.told'), ({ page }) => page)
  const died = new Map(history.of('page.died').map(({ page, stamp }) => [page, stamp]))
  const left = new Map(history.of('page.left').map(({ page, stamp }) => [page, stamp]))
  const copied = new Set(history.of('tab.copied').map(({ tab }) => tab))
  const byPage = grouped(links, ({ by }) => by)
  return history.of('page.begun').map((begun) => {
    const { page, tab } = begun
    return {
      begun,
      states: states.get(page) ?? [],
      told: told.get(page) ?? [],
      diedAt: died.get(page) ?? Infinity,
      leftAt: left.get(page) ?? Infinity,
      links: byPage.get(page) ?? [],
      isCopied: copied.has(tab),
    }
  })
}

function gatherWishes(history: History): WishFacts[] {
  const ends = new Map(history.of('wish.ended').map((ended) => [ended.wish, ended]))
  return history.of('wish.begun').map((begun) => {
    const ended = ends.get(begun.wish) ?? null
    return { begun, ended, outcome: ended?.outcome ?? null }
  })
}

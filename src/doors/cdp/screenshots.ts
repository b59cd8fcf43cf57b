/**
 * Pictures of pages, for people who look on. A page is photographed by a session of the door's own,
 * so that its clients notice nothing.
 *
 * A picture is good for a second: all who ask meanwhile get the same one. Only a few are taken at a
 * time, and none waits for a page that does not answer.
 */
import { HoldfastError, type Clock } from '../../core/index.ts'
import type { DoorSession } from './link.ts'
import type { Params } from './protocol.ts'
import type { BrowserTenant } from './tenant.ts'

export const SCREENSHOT_LIMITS = {
  /** The longer side of a picture, in pixels. */
  sideMax: 1_280,
  /** For how long it is shown again. */
  goodMs: 1_000,
  /** How long a page may take. */
  answerMs: 5_000,
  /** So many are taken at a time. */
  atOnceMax: 4,
} as const

const JPEG = { format: 'jpeg', quality: 60, optimizeForSpeed: true }

export class Screenshots {
  readonly #clock: Pick<Clock, 'after'>
  /** By the page's id: under way, or still good. */
  readonly #pictures = new Map<string, Promise<Buffer>>()
  #underWay = 0

  constructor(clock: Pick<Clock, 'after'>) {
    this.#clock = clock
  }

  /** A page of the tenant; without an id the newest. */
  of(tenant: BrowserTenant, id?: string): Promise<Buffer> {
    const pages = tenant.pages().filter(({ type }) => type === 'page')
    const page = id === undefined ? pages[0] : pages.find(({ targetId }) => targetId === id)
    if (page === undefined) throw new HoldfastError('target_unknown', 'there is no such page')
    const known = this.#pictures.get(page.targetId)
    if (known !== undefined) return known
    if (this.#underWay >= SCREENSHOT_LIMITS.atOnceMax) {
      throw new HoldfastError('too_many', 'too many pictures are being taken')
    }
    const picture = this.#take(tenant, page.targetId)
    this.#pictures.set(page.targetId, picture)
    const forget = (): boolean => this.#pictures.delete(page.targetId)
    picture.then(() => this.#clock.after(SCREENSHOT_LIMITS.goodMs, forget), forget)
    return picture
  }

  async #take({ host }: BrowserTenant, target: string): Promise<Buffer> {
    this.#underWay += 1
    let session: DoorSession | null = null
    let cancelTimer = (): void => undefined
    try {
      const late = new Promise<never>((_, reject) => {
        const error = new HoldfastError('browser_gone', 'the page does not answer')
        cancelTimer = this.#clock.after(SCREENSHOT_LIMITS.answerMs, () => reject(error))
      })
      const attached = new Promise<DoorSession>((resolve, reject) => {
        host.link.attach(target, (made) => {
          if (made === null) reject(new HoldfastError('target_unknown', 'the page is gone'))
          else resolve(made)
        })
      })
      session = await attached
      return await Promise.race([late, photograph(session)])
    } finally {
      cancelTimer()
      session?.detach()
      this.#underWay -= 1
    }
  }
}

/** What is visible of the page, scaled down by the browser. */
async function photograph(session: DoorSession): Promise<Buffer> {
  const { cssVisualViewport } = await ask(session, 'Page.getLayoutMetrics')
  const view = cssVisualViewport as Readonly<Record<string, number>> | undefined
  const {
    pageX: x = 0,
    pageY: y = 0,
    clientWidth: width = 1,
    clientHeight: height = 1,
  } = view ?? {}
  const scale = Math.min(1, SCREENSHOT_LIMITS.sideMax / Math.max(width, height, 1))
  const clip = { x, y, width, height, scale }
  const { data } = await ask(session, 'Page.captureScreenshot', { ...JPEG, clip })
  return Buffer.from(String(data), 'base64')
}

function ask(session: DoorSession, method: string, params: Params = {}): Promise<Params> {
  return new Promise((resolve, reject) => {
    session.ask(method, params, ({ result, error }) => {
      if (error === undefined) resolve(result ?? {})
      else reject(new HoldfastError('browser_gone', `the browser refused: ${error.message}`))
    })
  })
}

/** What axe-core finds wrong with a page for people with disabilities, by WCAG 2.2 AA. */
import axe from 'axe-core'
import type { Page } from 'playwright-core'

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']

const WIDE = { width: 1280, height: 800 }
const PHONE = { width: 390, height: 844 }

/** Every colour and every width is in one of them: axe takes a second for each. */
const FORMS = [
  { colorScheme: 'light', size: WIDE },
  { colorScheme: 'dark', size: WIDE },
  { colorScheme: 'dark', size: PHONE },
  { colorScheme: 'light', size: PHONE },
] as const

/** A line for each violation of the page as it is shown now. */
export async function axeViolations(page: Page): Promise<string[]> {
  // As the debugger evaluates it, it is no script of the page, whose policy would refuse it.
  if (!(await page.evaluate<boolean>('"axe" in window'))) await page.evaluate(axe.source)
  const options = { runOnly: RULES, resultTypes: ['violations'] }
  const { violations } = await page.evaluate<axe.AxeResults>(
    `axe.run(document, ${JSON.stringify(options)})`,
  )
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, html }) => `${id}: ${help}: ${target.join(' ')}: ${html}`),
  )
}

/** The same in light and dark, in a wide window and on a phone, which may not scroll sideways. */
export async function violationsInEveryForm(page: Page): Promise<string[]> {
  const found: string[] = []
  for (const { colorScheme, size } of FORMS) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await page.setViewportSize(size)
    const form = `${colorScheme}, ${size.width} px`
    for (const line of await axeViolations(page)) found.push(`${form}: ${line}`)
    const overflow = 'document.documentElement.scrollWidth - window.innerWidth'
    const pixels = await page.evaluate<number>(overflow)
    if (pixels > 0) found.push(`${form}: the page is ${pixels} pixels wider than the window`)
  }
  return found
}

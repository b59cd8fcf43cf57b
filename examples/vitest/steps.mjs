// The report's own steps (Vitest #10537) in a real Chromium: what happens, as one line of JSON.
//   node steps.mjs reload | second-tab | lost-socket
// HOLDFAST and CHROMIUM are those of vitest.config.mjs.
import { spawn } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright'

const WAIT_MS = 60_000
const isBare = process.env.HOLDFAST === 'off'
/** A re-run takes a second; in Vitest as it is, one that has not ended after so long is frozen. */
const RERUN_MS = isBare ? 8_000 : WAIT_MS
/** After so long with an invalid session, or in so many messages, it will not end. */
const LINGER_MS = 2_000
const STORM = 1_000
/** A refusal comes at once; in Vitest as it is there is none, and both tabs are left open. */
const REFUSAL_MS = isBare ? 3_000 : WAIT_MS

const STEPS = { reload, 'second-tab': secondTab, 'lost-socket': lostSocket }
const step = STEPS[process.argv[2]]
if (step === undefined) throw new Error(`one of ${Object.keys(STEPS).join(', ')}, please`)
console.log(JSON.stringify(await step()))

/** Open the page, see the result, reload the tab, click on re-run. */
async function reload() {
  return withPreview(async ({ vitest, page }) => {
    await page.reload()
    const over = page.getByText('This test session is over')
    await rerunButton(page).or(over).waitFor()
    if (await over.isVisible()) return { over: await over.innerText() }
    const rerun = await clickRerun(vitest, page, () => showsInvalidSession(page))
    const patience = AbortSignal.timeout(rerun.rerun ? 0 : WAIT_MS)
    return { ...rerun, invalidSession: await holds(() => showsInvalidSession(page), patience) }
  })
}

/** Open the same URL in a second tab, then click on re-run in the first. */
async function secondTab() {
  return withPreview(async ({ vitest, page, url, messages }) => {
    const other = await page.context().newPage()
    const openedAt = performance.now()
    await other.goto(url)
    const refusal = other.getByText('open in another tab')
    const refused = await appears(refusal, REFUSAL_MS)
    const refusedMs = refused ? Math.round(performance.now() - openedAt) : null
    const before = messages.count
    const rerun = await clickRerun(vitest, page, () => messages.count - before > STORM)
    return { ...rerun, refused, refusedMs, messages: messages.count - before }
  })
}

/** A headless run in which one test cuts the page's socket. */
async function lostSocket() {
  const vitest = startVitest(['run'])
  const code = await vitest.ended(WAIT_MS)
  return { passed: code === 0, tests: vitest.output().match(/Tests +(.*)/)?.[1] ?? null }
}

async function withPreview(work) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
  })
  const vitest = startVitest(['watch', 'sum'], { PROVIDER: 'preview', BROWSER: 'none' })
  try {
    const [, url] = await vitest.prints(/started at (\S+)/)
    const context = await browser.newContext()
    const messages = { count: 0 }
    context.on('page', (opened) => countMessages(opened, messages))
    const page = await context.newPage()
    await page.goto(url)
    await vitest.prints(/Tests +1 passed/)
    return await work({ vitest, page, url, messages })
  } finally {
    await browser.close()
    vitest.stop()
  }
}

function rerunButton(page) {
  return page.getByTestId('btn-run-all')
}

/** Clicks, and waits for the result: until the time is over, or the signs are bad. */
async function clickRerun(vitest, page, isHopeless) {
  const button = rerunButton(page)
  await button.waitFor()
  const startedAt = performance.now()
  const waiting = new AbortController()
  const printed = vitest.prints(/Tests +1 passed/, RERUN_MS).then(
    () => true,
    () => false,
  )
  await button.click()
  const rerun = await Promise.race([printed, becomes(isHopeless, waiting.signal)])
  waiting.abort()
  return { rerun, rerunMs: rerun ? Math.round(performance.now() - startedAt) : null }
}

/** False, a while after the signs became bad: what comes in spite of them still counts. */
async function becomes(isHopeless, signal) {
  await holds(isHopeless, signal)
  await delay(LINGER_MS)
  return false
}

/** Whether it is so, or becomes so before the signal. */
async function holds(condition, signal) {
  while (!(await condition())) {
    if (signal.aborted) return false
    await delay(200)
  }
  return true
}

async function showsInvalidSession(page) {
  const texts = await Promise.all(
    page.frames().map((frame) => frame.evaluate('document.body.innerText').catch(() => '')),
  )
  return texts.some((text) => text.includes('Invalid session ID'))
}

async function appears(locator, ms) {
  return locator.waitFor({ timeout: ms }).then(
    () => true,
    () => false,
  )
}

function countMessages(page, messages) {
  page.on('websocket', (socket) => {
    if (!socket.url().includes('__vitest_browser_api__')) return
    socket.on('framesent', () => (messages.count += 1))
  })
}

function startVitest(args, env = {}) {
  const main = fileURLToPath(import.meta.resolve('vitest/package.json')).replace(
    'package.json',
    'vitest.mjs',
  )
  const child = spawn(process.execPath, [main, ...args], {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    env: { ...process.env, NO_COLOR: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const exited = new Promise((resolve) => child.once('close', resolve))
  const waiting = new Set()
  let output = ''
  let read = 0
  const take = (chunk) => {
    output += chunk
    for (const check of waiting) check()
  }
  child.stdout.on('data', take)
  child.stderr.on('data', take)

  /** The next match in what it prints; what was matched once is not matched again. */
  const prints = (pattern, ms = WAIT_MS) =>
    new Promise((resolve, reject) => {
      const check = () => {
        const match = pattern.exec(output.slice(read))
        if (match === null) return
        read += match.index + match[0].length
        settle(resolve, match)
      }
      const settle = (how, value) => {
        clearTimeout(timer)
        waiting.delete(check)
        how(value)
      }
      const late = () => settle(reject, new Error(`no ${pattern} in ${ms} ms:\n${output}`))
      const timer = setTimeout(late, ms).unref()
      waiting.add(check)
      check()
    })

  const ended = async (ms) => {
    const timer = setTimeout(() => child.kill('SIGKILL'), ms)
    const code = await exited
    clearTimeout(timer)
    return code
  }
  return { prints, ended, output: () => output, stop: () => child.kill('SIGKILL') }
}

/**
 * `holdfast inspect`: opens the inspector of a server in a browser.
 *
 * A token reaches the page through a file that only this user can read, and which leads the
 * browser to the page with the token in the fragment of its address, which is sent to no server. It
 * is never an argument of the browser, which all users of a machine can see.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { defineCommand, toggle } from './command.ts'
import { say } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

/** How long the browser has to read the file. */
const READ_MS = 15_000

export const inspect = defineCommand({
  name: 'inspect',
  summary:
    'Opens the inspector of a running server in a browser. A token is handed over in a file that ' +
    'only you can read, and that is removed after 15 s.',
  flags: {
    print: toggle('only print the address to open, and open nothing'),
    ...REMOTE_FLAGS,
  },
  async run({ print, ...values }) {
    const remote = new Remote(values)
    // Refused here rather than in the page.
    await remote.json('/v1/me')
    if (remote.token === null) return show(`${remote.url}/`, print)
    // Before there is a file: a signal while the browser is started has to remove it, too.
    const ended = endedBySignal()
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-inspect-'))
    try {
      const file = join(folder, 'inspect.html')
      const address = `${remote.url}/#/token/${encodeURIComponent(remote.token)}`
      await writeFile(file, pageFor(address), { mode: 0o600 })
      await show(pathToFileURL(file).href, print, ended)
      // The browser has this long to read the file, unless the command is ended.
      await setTimeout(READ_MS, undefined, { signal: ended }).catch(() => undefined)
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
})

function endedBySignal(): AbortSignal {
  const ended = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => ended.abort())
  return ended.signal
}

async function show(address: string, isToPrint: boolean, ended?: AbortSignal): Promise<void> {
  if (isToPrint) return console.log(address)
  if (await opened(address, ended)) return say(`opened ${address}`)
  if (ended?.aborted !== true) say(`no browser could be started: open ${address}`)
}

const OPENERS: Readonly<Record<string, readonly string[]>> = {
  darwin: ['open'],
  win32: ['rundll32', 'url.dll,FileProtocolHandler'],
}

async function opened(address: string, ended?: AbortSignal): Promise<boolean> {
  const [program = 'xdg-open', ...args] = OPENERS[process.platform] ?? []
  const child = spawn(program, [...args, address], { stdio: 'ignore' })
  try {
    const [code] = (await once(child, 'exit', { signal: ended })) as [number | null]
    return code === 0
  } catch {
    // There is no such program, and the caller prints the address; or the command is ended.
    child.unref()
    return false
  }
}

/** The address has nothing in it but what a URL may have. */
function pageFor(address: string): string {
  const escaped = address.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;')
  return `<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url=${escaped}">
<title>Holdfast</title>
`
}

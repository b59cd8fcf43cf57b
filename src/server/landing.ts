/** The page at `/`: what this is, and where to go from here. It loads nothing. */
import { createHash } from 'node:crypto'
import { VERSION } from '../wire/version.ts'

const STYLE = `
  :root { color-scheme: light dark; }
  body { font: 1rem/1.6 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; }
  body { padding: 0 1rem; }
  pre { overflow-x: auto; padding: 1rem; border: 1px solid; border-radius: 0.4rem; }
  code { font-family: ui-monospace, monospace; }
`

const LINKS: readonly (readonly [path: string, meaning: string])[] = [
  ['/v1/sessions', 'the sessions, newest first'],
  ['/openapi.json', 'the whole HTTP interface'],
  ['/metrics', 'numbers for Prometheus'],
  ['/health', 'whether the process lives'],
  ['/ready', 'whether it takes work'],
]

/** Only the style above may apply, and nothing may be loaded, sent or framed. */
export const LANDING_POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

/** `host` is what the request called this server; it has passed the check of such names. */
export function landingPage(host: string): string {
  const links = LINKS.map(
    ([path, meaning]) => `<li><a href="${path}"><code>${path}</code></a> ${meaning}</li>`,
  )
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<h1>Holdfast</h1>
<p>The session authority: one place that decides what a session is, whose turn it is, who is
attached, and when it is over. Version ${VERSION}.</p>
<p>Try a turn; the session of the key <code>demo</code> is made when it is first used:</p>
<pre><code>${escape(tryLine(`http://${host}`))}</code></pre>
<ul>
${links.join('\n')}
</ul>
</main>
</body>
</html>
`
}

/** A command that anybody can paste to see a turn. */
export function tryLine(url: string): string {
  const header = `-H 'content-type: application/json'`
  return `curl -s ${url}/v1/keys/demo/turns ${header} -d '{"input":"hello"}'`
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')
}

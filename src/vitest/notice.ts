/** Pages shown in place of Vitest's: one asks whether the session is free, one says no. */

/** Says why there is no test session any more. */
export function overPage(reason: string): string {
  const text = `This test session is over: ${reason}.`
  return page(`<p>${escape(text)}</p>
<p>Run the tests again, and Vitest opens a new page.</p>`)
}

/** Asks for the session once it is loaded; shows the tests if it is free, or why it is not. */
export function waitingPage(): string {
  return page(`<p id="reason">Connecting to the test session …</p>
<p><button id="again" hidden>Try again</button></p>
<script>${SCRIPT}</script>`)
}

/** Runs in the browser. Loading the page again either shows the tests or why they are over. */
const SCRIPT = `
const url = new URL(location.href)
url.searchParams.set('holdfast', 'claim')
const again = document.getElementById('again')
again.onclick = () => location.reload()
fetch(url)
  .then((response) => response.json())
  .catch(() => ({ refusal: 'Vitest does not answer.' }))
  .then(({ refusal }) => {
    if (refusal === null) return location.reload()
    document.getElementById('reason').textContent = refusal
    again.hidden = false
  })
`

function page(body: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Vitest: test session</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 15vh auto; max-width: 34em; padding: 1em }
</style>
${body}
</html>
`
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
}

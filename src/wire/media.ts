/** What kind of file some bytes are. */

/** By its first bytes; null: no image that a browser shows without running anything in it. */
export function imageTypeOf(data: Uint8Array): string | null {
  const head = String.fromCharCode(...data.subarray(0, 12))
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png'
  if (head.startsWith('\xff\xd8\xff')) return 'image/jpeg'
  if (/^GIF8[79]a/.test(head)) return 'image/gif'
  return /^RIFF[^]{4}WEBP$/.test(head) ? 'image/webp' : null
}

const TYPES: Readonly<Record<string, string>> = {
  css: 'text/css',
  csv: 'text/csv',
  html: 'text/html',
  js: 'text/javascript',
  json: 'application/json',
  md: 'text/markdown',
  pdf: 'application/pdf',
  svg: 'image/svg+xml',
  ts: 'text/plain',
  txt: 'text/plain',
  xml: 'application/xml',
  yaml: 'application/yaml',
  yml: 'application/yaml',
  zip: 'application/zip',
}

/** By the end of its name. */
export function fileTypeOf(name: string): string {
  const [, extension = ''] = /\.(\w+)$/.exec(name) ?? []
  const known = extension.toLowerCase()
  return Object.hasOwn(TYPES, known) ? (TYPES[known] ?? '') : 'application/octet-stream'
}

import { describe, expect, it } from 'vitest'
import { isInternalUrl } from './targets.ts'

describe('the address of a page of the browser itself', () => {
  it.each([
    'chrome://inspect',
    ' CHROME://inspect',
    'ch\nro\tme://inspect',
    '\0chrome://inspect',
    'view-source:chrome://inspect',
    'chrome-untrusted://x',
    'devtools://devtools/bundled/inspector.html',
    'about:inspect',
    'about:blanket',
  ])('is known for what it is: %j', (url) => {
    expect(isInternalUrl(url)).toBe(true)
  })

  it.each([
    'about:blank',
    'about:blank#a',
    'about:srcdoc',
    'https://chrome.example/',
    'data:,a',
    7,
  ])('is not what every page may have: %j', (url) => {
    expect(isInternalUrl(url)).toBe(false)
  })
})

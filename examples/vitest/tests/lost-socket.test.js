import { expect, test } from 'vitest'

test('loses its socket in the middle', async () => {
  await fetch('/break')
  await new Promise((resolve) => setTimeout(resolve, 300))
  expect(document.visibilityState).toBe('visible')
})

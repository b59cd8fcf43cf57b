/** The scenarios, unchanged, through two nodes on one PostgreSQL. */
import { throughTwoNodes } from '../support/through-two-nodes.ts'

throughTwoNodes(50, async () => {
  await import('./copilot-sdk-disposed-session.test.ts')
  await import('./openclaw-3b1a3b2.test.ts')
  await import('./trinity-779.test.ts')
  await import('./vitest-10537.test.ts')
})

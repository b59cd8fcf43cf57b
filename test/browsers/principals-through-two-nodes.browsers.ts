/** Whose browser session it is, unchanged, through two nodes on one PostgreSQL. */
import { throughTwoNodes } from '../support/through-two-nodes.ts'

const administrator = { authorization: 'Bearer hf_admin' }

throughTwoNodes(
  10,
  async () => {
    await import('../cdp/ownership.test.ts')
    await import('../cdp/principals.test.ts')
  },
  administrator,
)

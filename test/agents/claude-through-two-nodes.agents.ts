/** The scenario with the real Claude Code, unchanged, through two nodes on one PostgreSQL. */
import { throughTwoNodes } from '../support/through-two-nodes.ts'

throughTwoNodes(1, () => import('../scenarios/trinity-779-claude.test.ts'))

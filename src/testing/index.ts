/** What a store of your own must pass, and what a log must be, for any test runner. */
export { checkLog, type CheckedEvent, type LogRules, type LogViolation } from '../core/log-check.ts'
export { storeConformance, type StoreCase, type StoreUnderTest } from './store/conformance.ts'

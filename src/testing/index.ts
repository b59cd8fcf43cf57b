/** What a store of your own must pass, for any test runner. */
export { storeConformance, type StoreCase, type StoreUnderTest } from './store/conformance.ts'

/** The version of this package, as people and programs are told; a test compares package.json. */
export const VERSION = '0.2.0-dev'

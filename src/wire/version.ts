/** The version of this package, as it is shown; a test compares it with package.json. */
export const VERSION = '0.2.0-dev'

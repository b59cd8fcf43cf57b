/** The version of this package, as it is told to people and programs; a test holds it to package.json. */
export const VERSION = '0.1.0'

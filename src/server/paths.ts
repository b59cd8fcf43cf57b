/** Where sockets are opened. */
export const CONNECT_PATH = '/v1/connect'

"""Java, jars, the Spark session around them, and what crosses between Python and the JVM."""

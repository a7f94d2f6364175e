import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;

/** Two namenodes of one service and a datanode in one process. Prints the addresses; on a line "failover" the
 * standby becomes active and the active one standby; ends with its input. */
public class HdfsServer {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("dfs.namenode.fs-limits.min-block-size", "0");
        settings.set("dfs.ha.tail-edits.period", "1");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, new File(arguments[0]))
                .nnTopology(MiniDFSNNTopology.simpleHATopology())
                .numDataNodes(1)
                .build();
        cluster.waitActive();
        cluster.transitionToActive(0);
        for (int i = 0; i < 2; i++) {
            System.out.println("namenode " + cluster.getNameNode(i).getHttpAddress().getPort() + " "
                    + cluster.getNameNodePort(i));
        }
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        int active = 0;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("failover")) {
                cluster.transitionToStandby(active);
                active = 1 - active;
                cluster.transitionToActive(active);
                System.out.println("active " + active);
            }
        }
        cluster.shutdown();
    }
}
